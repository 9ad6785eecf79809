"""Recognises an answer that a client hands back in other words than it was delivered in.

It takes a request's messages with their digests, and returns digests in which those of such answers are the recorded
ones. These are all the rules; everywhere else, equal digests are equal messages:

* An assistant message with a name is the message without it.
* Calls with their known identifiers and without text are the answer with these calls, whose text the client dropped.
* Calls written as text, in the family's own format, are calls.
* "Calling tools:" and a list of calls behind the text (smolagents) repeat the answer's calls, or code in its text.
* A stop string of the request behind the text was sampled, and withheld from the client.

Invariant: an answer is recognised only if the message says nothing else than it. Rules only look answers up; where the
answer joins is decided by its place in the tree.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seamlessflow.core.trajectory.messages import (
    calls_digest,
    message_digest,
    message_text,
    with_reasoning_of,
    without_reasoning,
)
from seamlessflow.core.trajectory.prefix_tree import TOKEN_BYTES, Node, PrefixTree
from seamlessflow.data_plane.turns.rendering.model_text import ModelText
from seamlessflow.data_plane.turns.rendering.parsers.deltas import ParsedOutput, parse_whole

MAX_FORMS = 1024  # that a tree remembers
MAX_READ_CHARS = (
    256 << 10
)  # of messages of one request that are read for calls: each costs the event loop time
NUM_LAST_TOKENS = 64  # of an answer, in which its stop string is looked for
_LISTED = "Calling tools:\n"
_FENCE_CHARS = 16  # of "```" and the name of a language

Message = Mapping[str, Any]
Calls = Sequence[Mapping[str, Any]]


class _Form(NamedTuple):
    """A message that the client may mean; `ending`: text that the answer sampled and that the message lacks."""

    message: Message
    ending: str = ""


@dataclass(slots=True)
class AnswerForms:
    """The rules for one request.

    tools: of the request; without them no text is read for calls. num_left: characters that may still be read.
    """

    tree: PrefixTree
    text: ModelText
    tools: Sequence[Any] | None
    stop: Sequence[str] = ()
    num_left: int = MAX_READ_CHARS

    def recorded_digests(self, messages: Sequence[Message], digests: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return the digests with the recorded ones in place of those of recognised answers."""
        if not self.tree.answers:
            return digests
        return tuple(
            self._recorded(message, digest) if message.get("role") == "assistant" else digest
            for message, digest in zip(messages, digests, strict=True)
        )

    def calls_as_text(self, message: Message) -> ParsedOutput | None:
        """Return what a message says that has calls only in its text; None if there are none."""
        content = message_text(message.get("content"))
        if not self.tools or message.get("tool_calls") or not self._may_read(content):
            return None
        parsed = _parsed(self.text, self.tools, content)
        return parsed if parsed.tool_calls else None

    def with_calls(self, messages: Sequence[Message], num_known: int) -> Sequence[Message]:
        """Return the messages with calls in place of text in those of the first `num_known` whose results follow.

        Templates refuse results without calls, and calls without results; so text stays where no results follow, and
        where the request has no tools.
        """
        if not self.tools:
            return messages
        shown = list(messages)
        for place, message in enumerate(messages[:num_known]):
            if message.get("role") == "assistant" and not message.get("tool_calls"):
                shown[place] = self._with_results(message, _results(messages, place + 1))
        return shown

    def _with_results(self, message: Message, results: Sequence[Message]) -> Message:
        parsed = self.calls_as_text(message) if results else None
        if parsed is None or len(parsed.tool_calls) != len(results):
            return message
        return _with_parsed(message, parsed, [str(result.get("tool_call_id", "")) for result in results])

    def _recorded(self, message: Message, digest: bytes) -> bytes:
        if (node := self._called(message)) is not None:
            return with_reasoning_of(node.digests[0], digest)
        if without_reasoning(digest) in self.tree.answers:
            return digest
        if (known := self.tree.forms.get(digest)) is not None:
            return known
        found = next(filter(None, map(self._looked_up, self._forms(message))), None)
        if found is None:
            return digest
        if len(self.tree.forms) >= MAX_FORMS:
            self.tree.forms.clear()
        self.tree.forms[digest] = found
        return found

    def _called(self, message: Message) -> Node | None:
        """Return the answer whose calls a message without text has."""
        if (
            not (self.tree.called and message.get("tool_calls"))
            or message_text(message.get("content")).strip()
        ):
            return None
        return self.tree.called.get(calls_digest(message))

    def _looked_up(self, form: _Form) -> bytes | None:
        digest = message_digest(form.message)
        node = self.tree.answers.get(without_reasoning(digest))
        return None if node is None or not self._has_sampled(node, form.ending) else digest

    def _has_sampled(self, node: Node, ending: str) -> bool:
        if not ending:
            return True
        last = np.frombuffer(node.token_ids[-NUM_LAST_TOKENS * TOKEN_BYTES :], dtype="<i4")
        return ending in self.text.decode(last.tolist())

    def _forms(self, message: Message) -> Iterator[_Form]:
        """Yield the other messages that one may stand for."""
        unnamed = {key: value for key, value in message.items() if key != "name"}
        for text in (unnamed, *self._readings(unnamed)):
            yield _Form(text)
            yield from self._with_endings(text)

    def _readings(self, message: Message) -> Iterator[Message]:
        content, own = message_text(message.get("content")), message.get("tool_calls") or []
        parsed = self.calls_as_text(message)
        if parsed is not None:
            yield _with_parsed(message, parsed)
        text, listed = self._listed(content)
        if listed and (not own or calls_digest({"tool_calls": own}) == calls_digest({"tool_calls": listed})):
            yield {**message, "content": text, "tool_calls": listed}
        if listed and not own and all(_is_code_of(text, call) for call in listed):
            yield {**message, "content": text}

    def _with_endings(self, message: Message) -> Iterator[_Form]:
        content = message_text(message.get("content")).rstrip()
        for ending in self.stop:
            if content.endswith(ending):
                yield _Form({**message, "content": content.removesuffix(ending)}, ending)

    def _listed(self, content: str) -> tuple[str, Calls]:
        """Return the text and the calls that are listed behind it."""
        text, mark, listed = content.rpartition(_LISTED)
        if not mark or not (text.endswith("\n") or not text) or not self._is_within(len(listed)):
            return content, []
        return text, _calls(listed)

    def _may_read(self, content: str) -> bool:
        """Return whether the text may have calls, and may still be read. Some families write calls without a mark."""
        may_call = content.lstrip().startswith("{") or any(m in content for m in self.text.family.marks)
        return may_call and self._is_within(len(content))

    def _is_within(self, num_chars: int) -> bool:
        if num_chars > self.num_left:
            return False
        self.num_left -= num_chars
        return True


def _results(messages: Sequence[Message], begin: int) -> Sequence[Message]:
    """Return the results of tools that stand together from `begin` on."""
    end = begin
    while end < len(messages) and messages[end].get("role") == "tool":
        end += 1
    return messages[begin:end]


def _parsed(text: ModelText, tools: Sequence[Any], content: str) -> ParsedOutput:
    """Parse a text as an answer. Reasoning may have been opened by the prompt."""
    family = text.family
    is_open = bool(family.end_think) and family.end_think in content and family.think not in content
    return parse_whole(family.parser(tools=tools, starts_in_reasoning=is_open), content)


def _with_parsed(message: Message, parsed: ParsedOutput, ids: Sequence[str] = ()) -> Message:
    calls = [
        {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call, call_id in zip(parsed.tool_calls, ids or [""] * len(parsed.tool_calls), strict=True)
    ]
    reasoning = message.get("reasoning_content") or parsed.reasoning
    return {**message, "content": parsed.content, "tool_calls": calls, "reasoning_content": reasoning}


def _calls(listed: str) -> Calls:
    """Read a list of calls as Python writes it; none if it is no such list."""
    try:
        calls = msgspec.json.decode(msgspec.json.encode(ast.literal_eval(listed.strip())))
    except (ValueError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError):
        return []
    is_list = isinstance(calls, list) and all(map(_is_call, calls))
    return calls if is_list else []


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return (
        isinstance(function, dict)
        and isinstance(call.get("id"), str)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), str | dict)
    )


def _is_code_of(text: str, call: Mapping[str, Any]) -> bool:
    """Return whether the call's only argument is the last block of code in the text, between tags or fences."""
    code = call["function"]["arguments"]
    if not isinstance(code, str) or not code.strip():
        return False
    before, found, after = text.rpartition(code.strip())
    opening, closing = before.rstrip(), after.lstrip()
    is_opened = not opening or opening.endswith(">") or "```" in opening[-_FENCE_CHARS:].split("\n")[-1]
    return bool(found) and is_opened and (not closing or closing.startswith(("<", "```")))
