"""What a runner's client says to a gateway that did not answer the first time."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from seamlessflow.core.protocol.data_plane import GroupLeaseReply, GroupLeaseRequest
from seamlessflow_workers.agents.gateway_client import RunnerClient
from seamlessflow_workers.clients import http
from seamlessflow_workers.clients.http import ServerUnavailable

HELD = [UUID(int=1), UUID(int=2)]


async def test_a_lease_that_is_asked_for_again_states_the_sessions_that_the_runner_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first answer may be lost, with sessions in it that nobody else would run."""
    sent: list[GroupLeaseRequest] = []

    async def posted(_session: Any, _url: str, message: Any, *, timeout_s: float) -> bytes:
        sent.append(message)
        if len(sent) < 3:
            raise ServerUnavailable("the gateway died")
        return msgspec.json.encode(GroupLeaseReply(groups=[]))

    monkeypatch.setattr(http, "post_json", posted)
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.0)
    request = GroupLeaseRequest(max_sessions=4)

    async with RunnerClient(
        gateway_url="http://gateway", control_plane_url="http://platform", credential=""
    ) as client:
        await client.groups_lease(request, held=HELD)

    assert sent == [request, *[msgspec.structs.replace(request, held=HELD)] * 2]
