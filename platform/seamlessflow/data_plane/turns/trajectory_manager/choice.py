"""One answer of a turn while it grows: its tokens, its text, and how a client sees it.

A `Choice` takes the progress of the answer and the text made from it. It returns the finish reason, the ids of tool
calls and the assistant message. Invariant: the stream and the record name the same tool call by the same id.
"""

import secrets
from dataclasses import dataclass, field
from typing import Any

from seamlessflow.core.trajectory.resume import AnswerProgress, FinishReason
from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText


@dataclass(slots=True)
class Choice:
    """One of the n answers."""

    index: int
    progress: AnswerProgress
    text: AnswerText
    call_ids: list[str] = field(default_factory=list)

    @property
    def finish_reason(self) -> str:
        if self.progress.finish_reason is FinishReason.LENGTH:
            return "length"
        return "tool_calls" if self.text.parsed.tool_calls else "stop"

    def call_id(self, number: int) -> str:
        """Return the identifier of tool call `number`, which the stream and the record share."""
        while len(self.call_ids) <= number:
            self.call_ids.append(f"call_{secrets.token_hex(12)}")
        return self.call_ids[number]

    def message(self) -> dict[str, Any]:
        """Return the assistant message as delivered."""
        parsed = self.text.parsed
        message: dict[str, Any] = {"role": "assistant", "content": parsed.content or None}
        if not parsed.tool_calls:
            message["content"] = parsed.content
        else:
            message["tool_calls"] = [
                {
                    "id": self.call_id(number),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for number, call in enumerate(parsed.tool_calls)
            ]
        if parsed.reasoning:
            message["reasoning_content"] = parsed.reasoning
        return message
