"""A response that was answered before, from its rows: for clients that ask for it by its identifier.

Takes a session, the texts of its nodes and an identifier; returns the response, or the items that its conversation had
before it. What only its request had (the tools) is not recorded and left out. Invariant: the answer's text, calls and
counts are the recorded ones; nothing is parsed again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from seamlessflow.core.protocol.openai_responses import ResponseItems
from seamlessflow.core.trajectory.answer_progress import AnswerProgress, FinishReason
from seamlessflow.core.trajectory.messages import message_text
from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES, Drift
from seamlessflow.data_plane.dialects.responses.reply import ResponsesReply
from seamlessflow.data_plane.dialects.responses.request import ResponseOptions
from seamlessflow.data_plane.dialects.responses.stored import (
    StoredResponse,
    reference_read,
    response_unknown,
    stored_answer,
)
from seamlessflow.data_plane.store.turns.node_texts import NodeText
from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText
from seamlessflow.data_plane.turns.rendering.parsers.deltas import ParsedOutput, ToolCall
from seamlessflow.data_plane.turns.trajectory_manager.live import Choice, LiveSession, Turn
from seamlessflow.data_plane.turns.trajectory_manager.plan import TurnPlan
from seamlessflow.data_plane.turns.trajectory_manager.recorded_turns import RecordedTurns


def answer_found(recorded: RecordedTurns, identifier: str) -> tuple[NodeText, StoredResponse]:
    """Return the answer of a response. Raises ApiError (404)."""
    reference = reference_read(identifier)
    found = stored_answer(recorded, reference)
    if reference is None or found is None or reference.kind != "resp":
        raise response_unknown(identifier)
    return found


def response_read(session: LiveSession, recorded: RecordedTurns, identifier: str) -> bytes:
    """Return a response as it was answered. Raises ApiError (404)."""
    node, stored = answer_found(recorded, identifier)
    (delivered,) = node.messages
    turn = _turn(session, node, delivered)
    return ResponsesReply(
        turn, _options(session, recorded, node, stored), created_s=_created_s(turn.turn_id)
    ).whole()


def input_items(recorded: RecordedTurns, identifier: str) -> bytes:
    """Return the items of the conversation before a response, the newest first. Raises ApiError (404)."""
    node, stored = answer_found(recorded, identifier)
    messages = recorded.messages_up_to(node)[:-1]
    if stored.num_instructions:
        messages = messages[1:]
    items = [item for index, message in enumerate(messages) for item in _items(message, node.turn_id, index)]
    items.reverse()
    ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {}
    return msgspec.json.encode(ResponseItems(data=items, **ends))


def _turn(session: LiveSession, node: NodeText, delivered: Mapping[str, Any]) -> Turn:
    tree = session.tree
    answer = tree.nodes[node.index]
    progress = AnswerProgress(
        prompt_ids=b"",
        max_tokens=answer.num_tokens,
        token_ids=bytearray(answer.token_ids),
        logprobs=bytearray(answer.logprobs),
        spans=answer.spans,
        finish_reason=FinishReason.LENGTH if node.finish_reason == "length" else FinishReason.STOP,
    )
    text = AnswerText(session.job.text, stop=(), tools=None, starts_in_reasoning=False)
    text.parsed = ParsedOutput(
        delivered.get("content") or "", delivered.get("reasoning_content") or "", _calls(delivered)
    )
    choice = Choice(0, progress, text)
    return Turn(session, _plan(session, node), [choice], node.turn_id, b"", {}, 0.0, is_recorded=True)


def _plan(session: LiveSession, node: NodeText) -> TurnPlan:
    """Return where the answer's prompt is, for the counts of its usage."""
    tree = session.tree
    assert node.parent is not None
    prompt = tree.nodes[node.parent]
    prompt_ids = tree.path_tokens(prompt.index)
    is_first = tree.children[prompt.index][0] == node.index
    known_ids = tree.path_tokens(prompt.parent) if is_first else prompt_ids[:-TOKEN_BYTES]
    return TurnPlan(
        parent=prompt.parent,
        kind=prompt.kind,
        new_ids=prompt.token_ids,
        prompt_ids=prompt_ids,
        num_cached_tokens=len(known_ids) // TOKEN_BYTES,
        digests=prompt.digests,
        messages=(),
        context=prompt.context,
        drift=Drift.CLEAN,
        cause=None,
        starts_in_reasoning=False,
    )


def _options(
    session: LiveSession, recorded: RecordedTurns, node: NodeText, stored: StoredResponse
) -> ResponseOptions:
    instructions = None
    if stored.num_instructions:
        instructions = recorded.messages_up_to(node)[0]["content"][: stored.num_instructions]
    return ResponseOptions(
        instructions=instructions,
        max_output_tokens=stored.max_output_tokens,
        metadata=stored.metadata,
        tool_choice=stored.tool_choice,
        tools=[],
        custom_tools=frozenset(stored.custom_tools),
        namespaces=stored.namespaces,
        has_encrypted_reasoning=False,
        has_logprobs=False,
        num_top=0,
        temperature=session.sampling.temperature,
        previous=stored.previous,
    )


def _calls(delivered: Mapping[str, Any]) -> list[ToolCall]:
    return [
        ToolCall(call["function"]["name"], call["function"]["arguments"], call["id"])
        for call in delivered.get("tool_calls") or ()
    ]


def _created_s(turn_id: UUID) -> int:
    """Return when a turn began, from its identifier, a UUIDv7."""
    return (turn_id.int >> 80) // 1000


def _items(message: Mapping[str, Any], turn_id: UUID, index: int) -> Iterator[dict[str, Any]]:
    """Yield a message as items; those of a request have no identifiers of their own."""
    named, text = f"{turn_id.hex}_{index}", message_text(message.get("content"))
    if message.get("role") == "tool":
        result = {"call_id": message.get("tool_call_id", ""), "output": text, "status": "completed"}
        yield {"type": "function_call_output", "id": f"fco_{named}", **result}
        return
    is_answer = message.get("role") == "assistant"
    if text or not message.get("tool_calls"):
        part: dict[str, Any] = {"type": "output_text" if is_answer else "input_text", "text": text}
        content: Sequence[dict[str, Any]] = [part | ({"annotations": []} if is_answer else {})]
        head = {"type": "message", "id": f"msg_{named}", "role": message.get("role"), "status": "completed"}
        yield {**head, "content": content}
    for number, call in enumerate(_calls(message)):
        delivered = {"call_id": call.call_id, "name": call.name, "arguments": call.arguments}
        yield {"type": "function_call", "id": f"fc_{named}_{number}", **delivered, "status": "completed"}
