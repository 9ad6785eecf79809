"""Lines for a provider's accounts, wherever a client puts them into system or developer messages."""

import json
from typing import Any

import pytest

from seamlessflow.core.trajectory.messages import message_digests
from seamlessflow.data_plane.dialects.chat.request import chat_request_parse
from seamlessflow.data_plane.dialects.responses.request import response_request_parse
from seamlessflow.data_plane.dialects.system_text import messages_without_markers
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation

MARKER = "x-vendor-billing-header: cch=%d;"
USER = {"role": "user", "content": "x-cache: is what I ask about"}


def chat(*messages: Any) -> Any:
    return chat_request_parse(json.dumps({"messages": messages}).encode(), temperature=1.0)


def response(*items: Any) -> Any:
    return response_request_parse(json.dumps({"input": items}).encode(), temperature=1.0)


def digests(request: Any) -> tuple[bytes, ...]:
    assert isinstance(request.conversation, Conversation)
    return message_digests(request.conversation.messages)


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("parse,field", [(chat, "messages"), (response, "input")])
def test_a_line_that_changes_with_every_request_changes_no_digest(parse: Any, field: str, role: str) -> None:
    plain = parse({"role": role, "content": "Be terse."}, USER)
    for number in range(2):
        marked = parse({"role": role, "content": MARKER % number + "\nBe terse."}, USER)
        assert digests(marked) == digests(plain)
        assert marked.flags["markers_removed"] == ["x-vendor-billing-header"]
        assert f"{field}.x-vendor-billing-header" in marked.ignored
    assert "markers_removed" not in plain.flags


def test_a_part_or_message_with_markers_alone_is_left_out() -> None:
    part = {"type": "text", "text": MARKER % 1}
    text = {"type": "text", "text": "Be terse."}
    messages, names = messages_without_markers(
        [{"role": "system", "content": [part, text]}, {"role": "developer", "content": MARKER % 2}, USER]
    )

    assert messages == [{"role": "system", "content": [text]}, USER]
    assert names == ("x-vendor-billing-header",)


def test_other_roles_and_odd_content_are_not_touched() -> None:
    messages: list[Any] = [
        USER,
        {"role": "system", "content": None},
        {"role": "system", "content": [{"type": "image_url"}, 3]},
    ]

    assert messages_without_markers(messages) == (messages, ())


@pytest.mark.parametrize("parse", [chat, response])
def test_a_request_of_markers_alone_is_refused(parse: Any) -> None:
    with pytest.raises(ApiError, match="only markers"):
        parse({"role": "system", "content": MARKER % 1})
