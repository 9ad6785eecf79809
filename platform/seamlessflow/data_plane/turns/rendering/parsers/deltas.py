"""What a parser returns: deltas of an answer, and the deltas of a whole answer joined.

Invariant of every parser: the joined deltas do not depend on how the text was cut into pieces, and no text is lost
except the marks of reasoning and calls that were understood, and white space next to them; between two texts one side's
stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Tools = Sequence[Any]  # tool definitions in the OpenAI format


def tool_names(tools: Tools) -> list[str]:
    """Return the names of the tools that a request offers."""
    functions = (tool.get("function") for tool in tools if isinstance(tool, dict))
    names = (function.get("name") for function in functions if isinstance(function, dict))
    return [name for name in names if isinstance(name, str)]


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: str  # JSON text; in formats that carry it verbatim, exactly the model's own text
    call_id: str = ""  # the identifier that the model wrote, if its format has one


@dataclass(frozen=True, slots=True)
class Delta:
    """One piece of an answer. A tool call comes whole."""

    content: str = ""
    reasoning: str = ""
    tool_call: ToolCall | None = None


@dataclass(slots=True)
class ParsedOutput:
    """The deltas of a whole answer, joined."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        self.content += delta.content
        self.reasoning += delta.reasoning
        if delta.tool_call is not None:
            self.tool_calls.append(delta.tool_call)


class OutputParser(Protocol):
    def push(self, text: str) -> list[Delta]:
        """Return the deltas that this text completes."""

    def finish(self) -> list[Delta]:
        """Return the deltas that were held back; an unfinished call becomes content."""


def parse_whole(parser: OutputParser, text: str) -> ParsedOutput:
    """Parse a whole answer at once."""
    parsed = ParsedOutput()
    for delta in parser.push(text) + parser.finish():
        parsed.add(delta)
    return parsed
