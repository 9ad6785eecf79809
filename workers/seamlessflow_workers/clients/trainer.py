"""The trainer's HTTP client: leases batches from the gateway and announces publications to the control plane.

A client lives for one phase and carries its credential. Every call may be repeated: the same batch number always
returns the same bytes, and the same publication the same answer.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from seamlessflow.core.batching.format import Batch, batch_decode
from seamlessflow.core.protocol.data_plane import BatchLeaseRequest
from seamlessflow.core.protocol.worker import Publication, PublicationReply
from seamlessflow_workers.clients.http import RequestRefused, post_until_answered

ANSWER_MARGIN_S = 30.0  # on top of the long poll, for the bytes themselves
PUBLICATION_TIMEOUT_S = 30.0


class TrainerClient:
    """Use as `async with TrainerClient(...) as client`."""

    def __init__(self, *, gateway_url: str, control_plane_url: str, credential: str) -> None:
        self._lease_url = f"{gateway_url.rstrip('/')}/trainer/v1/batches/lease"
        self._publications_url = f"{control_plane_url.rstrip('/')}/api/worker/v1/publications"
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {credential}"})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    def renew(self, credential: str) -> None:
        """Use this credential from the next request on."""
        self._session.headers["Authorization"] = f"Bearer {credential}"

    async def batch_lease(self, request: BatchLeaseRequest) -> Batch:
        """Return the batch with number `request.number`, waiting until there is one. Cancel to stop waiting.

        Raises FencedOff, RequestRefused.
        """
        raw = None
        while raw is None:  # 204: nothing ready within wait_s
            raw = await post_until_answered(
                self._session, self._lease_url, request, timeout_s=request.wait_s + ANSWER_MARGIN_S
            )
        batch = batch_decode(raw)
        if batch.header.number != request.number:
            raise RequestRefused(
                f"the gateway returned batch {batch.header.number}, expected {request.number}"
            )
        return batch

    async def publication_announce(
        self, publication: Publication, *, may_retry: Callable[[], bool]
    ) -> PublicationReply:
        """Announce a version. Raises FencedOff, RequestRefused, and ServerUnavailable once `may_retry` is false."""
        raw = await post_until_answered(
            self._session,
            self._publications_url,
            publication,
            timeout_s=PUBLICATION_TIMEOUT_S,
            may_retry=may_retry,
        )
        return msgspec.json.decode(raw or b"", type=PublicationReply)
