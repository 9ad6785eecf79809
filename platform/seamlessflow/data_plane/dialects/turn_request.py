"""What every dialect turns a body into: one request for the next answer of a conversation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from seamlessflow.core.guidance.answer_grammar import ToolDemand
from seamlessflow.data_plane.dialects.events import EVENT_STREAM
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation, RawPrompt
from seamlessflow.data_plane.turns.trajectory_manager.recorded_turns import RecordedTurns

Options = TypeVar("Options")  # what a dialect's own reply must know about the request


@dataclass(frozen=True, slots=True)
class TurnRequest(Generic[Options]):
    """The conversation has the form of chat messages, with `reasoning_content` and `tool_calls`.

    An answer is searched for tool calls if the conversation has tools. A raw prompt has no messages, and its answer is
    not searched for reasoning or tool calls. A request that names earlier answers by their identifiers has no messages
    yet: `completed` returns its conversation, or raises ApiError (404) if an identifier is unknown.
    """

    conversation: Conversation | RawPrompt
    num_choices: int
    stop: tuple[str, ...]
    max_tokens: int | None
    is_streamed: bool
    flags: dict[str, Any]  # recorded with the turn: the seed, and the values that the job overrides
    ignored: tuple[str, ...]  # fields of the body that have no effect
    options: Options
    demand: ToolDemand | None = None  # of the form of the answer
    num_top: int = 0  # likeliest tokens to report with each sampled one
    stream_type: bytes = EVENT_STREAM
    completed: Callable[[RecordedTurns], Conversation] | None = None
    has_one_call: bool = False  # an answer may have at most one call
    reshaping: Mapping[str, Any] = field(default_factory=dict)  # penalties and biases, which are not trained
