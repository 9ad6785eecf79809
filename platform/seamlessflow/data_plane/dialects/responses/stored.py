"""Responses that the session keeps: how their identifiers name turns, and what is recorded of one beside its answer.

`resp_<turn>` names a response and `rs_`, `msg_`, `fc_`, `ctc_` or `ctcr_<turn><number>` an item of it. The tree of the
session has its text and tokens; `StoredResponse` is a flag of the answer. Invariant: only answers with this flag can be
named, so neither a response with `store: false` nor another session's is ever found.
"""

import re
from http import HTTPStatus
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.store.turns.node_texts import NodeText
from seamlessflow.data_plane.turns.trajectory_manager.recorded_turns import RecordedTurns

STORED_FLAG = "response"
_ID = re.compile(r"(resp|msg|rs|fc|ctc|ctcr)_([0-9a-f]{32})([0-9a-f]*)")


class StoredResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a response repeats of its request.

    num_instructions: characters of the instructions, with which the system message of the conversation begins.
    """

    num_instructions: int = 0
    previous: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = {}
    tool_choice: str | dict[str, Any] = "auto"
    custom_tools: tuple[str, ...] = ()
    namespaces: dict[str, tuple[str, str]] = {}

    def flags(self) -> dict[str, Any]:
        return {STORED_FLAG: msgspec.to_builtins(self)}


class Reference(NamedTuple):
    """An identifier, read: the kind of thing, its turn, and its number among the items or calls of its kind."""

    kind: str
    turn_id: UUID
    number: int


def reference_read(identifier: object) -> Reference | None:
    """Return what an identifier names; None if this server gave out no such identifier."""
    found = _ID.fullmatch(identifier) if isinstance(identifier, str) else None
    return None if found is None else Reference(found[1], UUID(hex=found[2]), int(found[3] or "0", 16))


def stored_answer(
    recorded: RecordedTurns, reference: Reference | None
) -> tuple[NodeText, StoredResponse] | None:
    """Return the recorded answer of a reference's turn; None if there is none, or if it was not to be stored."""
    node = None if reference is None else recorded.answer(reference.turn_id)
    flag = None if node is None else node.flags.get(STORED_FLAG)
    return None if node is None or flag is None else (node, msgspec.convert(flag, StoredResponse))


def response_unknown(identifier: str) -> ApiError:
    return ApiError(HTTPStatus.NOT_FOUND, f"Response with id '{identifier}' not found.")


def previous_unknown(identifier: str) -> ApiError:
    return ApiError(
        HTTPStatus.NOT_FOUND,
        f"Previous response with id '{identifier}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def item_unknown(identifier: object, field: str) -> ApiError:
    return ApiError(
        HTTPStatus.NOT_FOUND,
        f"{field}: Item with id '{identifier}' not found. Items are not kept when `store` is false.",
        param="input",
    )
