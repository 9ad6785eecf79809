"""The guide of an answer that must be JSON of a schema, or must call tools, or may call them only by their schemas.

It takes a client's demands and the model's known properties, and returns `structured_outputs` for `guide_make`. The
answer may reason first, if the model marks its reasoning. A demand for content alone, of a model without such marks, is
a guide of kind `json`; everything else is a grammar. Marks that are special tokens of the model are named as tokens,
because ordinary text never contains them; other marks are text.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from seamlessflow.core.families import ModelFamily
from seamlessflow.core.guidance.argument_rules import element_text, json_rules, json_text, tagged_rules
from seamlessflow.core.guidance.call_forms import CallForm, Element, TaggedArguments, Text, call_form
from seamlessflow.core.guidance.guide import InvalidGuideError, literal_pattern

MAX_REASONING_CHARS = 8192  # a longer bound costs the matcher as many states


class CallableTool(msgspec.Struct, frozen=True, array_like=True):
    name: str
    parameters: Mapping[str, Any]  # JSON schema of its arguments; empty: any object


class ToolDemand(msgspec.Struct, frozen=True, array_like=True):
    """What a client demands of an answer: content of a schema, tool calls, or (`may_answer`) either of them.

    Without a schema, content that may stand instead of calls is any text.
    """

    field: str  # of the client's request, for refusals
    schema: Mapping[str, Any] | None = None
    tools: Sequence[CallableTool] = ()
    is_parallel: bool = True
    may_answer: bool = False
    max_reasoning_chars: int = MAX_REASONING_CHARS  # where the answer has a form to come to


@dataclass(frozen=True, slots=True)
class GuidedModel:
    """`may_reason`: its chat template knows the marks of reasoning, and the prompt has not closed the reasoning."""

    family: ModelFamily
    think: tuple[str, str]  # the marks of reasoning
    has_token: Callable[[str], bool]
    special_id: Callable[[str], int | None]  # of a token that no ordinary text contains
    may_reason: bool = True


def answer_guide(demand: ToolDemand, model: GuidedModel, *, starts_in_reasoning: bool) -> dict[str, Any]:
    """Return the guide. With `starts_in_reasoning` the prompt has opened the reasoning, so the answer must close it.

    Raises InvalidGuideError if answers of the model's family cannot be guided like this.
    """
    if model.family is ModelFamily.GPT_OSS:
        raise InvalidGuideError(f"answers of the model family {model.family} cannot be guided")
    rules = _Rules(model)
    is_free = demand.may_answer and demand.schema is None
    most = None if is_free else max(0, min(demand.max_reasoning_chars, MAX_REASONING_CHARS))
    reasoning = rules.reasoning(is_open=starts_in_reasoning, most=most)
    if demand.schema is not None and not demand.tools and not reasoning:
        return {"json": demand.schema}
    content = [] if demand.schema is None else [rules.content(demand.schema)]
    if not demand.tools:
        return {"grammar": rules.text(f"start: {reasoning} {content[0]}")}
    form = call_form(model.family, has_token=model.has_token)
    if is_free:
        return {"grammar": rules.text(*rules.content_or_calls(form, reasoning, demand))}
    ways = " | ".join([*content, rules.calls(form, demand)])
    return {"grammar": rules.text(f"start: {reasoning} ({ways})")}


def calls_check(
    tools: Sequence[CallableTool], family: ModelFamily, *, has_token: Callable[[str], bool]
) -> None:
    """Raise InvalidGuideError if calls of these tools cannot be guided. Schemas of JSON are not looked into."""
    form = call_form(family, has_token=has_token)
    for tool in tools:
        for element in form.call(tool.name):
            if isinstance(element, TaggedArguments):
                list(tagged_rules("arguments", tool.parameters, element, str))


class _Rules:
    """The rules of one grammar, beside `start`."""

    def __init__(self, model: GuidedModel) -> None:
        self._model = model
        self._lines: list[str] = []

    def text(self, *first: str) -> str:
        return "\n".join([*first, *self._lines]) + "\n"

    def reasoning(self, *, is_open: bool, most: int | None) -> str:
        """Return the reasoning at the beginning, of at most `most` characters; "" if there is none.

        Where a form must follow (`most` is known), a weak policy would otherwise think until its last token, and a
        model whose template knows no reasoning does not begin one. Content may contain marks that are no special
        tokens, so before it only an open reasoning must be closed.
        """
        opening, closing = self._model.think
        may_begin = self._model.has_token(opening) and (most is None or self._model.may_reason)
        if not is_open and not may_begin:
            return ""
        times = "*" if most is None else f"{{0,{most}}}"
        if self._model.special_id(closing) is not None:
            thought = rf"/(.|\n){times}/ {self._named(closing)} /\n{{0,2}}/"
        elif is_open or most is not None:
            self._lines.append(rf"thought[suffix={json.dumps(closing)}]: /(.|\n){times}/")
            thought = r"thought /\n{0,2}/"
        else:
            return ""
        return thought if is_open else f"({self._named(opening)} {thought})?"

    def content(self, schema: Mapping[str, Any]) -> str:
        self._lines.append(f"answer: %json {json_text(schema)}")
        return "answer"

    def calls(self, form: CallForm, demand: ToolDemand, *, is_opened: bool = False) -> str:
        """Return one or more calls. With `is_opened` the mark that opens the first one is not repeated."""
        for number, tool in enumerate(demand.tools):
            elements, arguments = form.call(tool.name), f"args_{number}"
            self._lines.append(f"call_{number}: {self._sequence(elements, arguments)}")
            self._lines.append(
                f"first_{number}: {self._sequence(elements[is_opened and not form.leads :], arguments)}"
            )
            self._lines += self._arguments(elements, arguments, tool)
        for name in ("call", "first"):
            self._lines.append(
                f"{name}: {' | '.join(f'{name}_{number}' for number in range(len(demand.tools)))}"
            )
        again = f"({self._sequence(form.between)} call)*" if demand.is_parallel else ""
        return f"{self._sequence(form.leads[is_opened:])} first {again} {self._sequence(form.trails)}"

    def content_or_calls(self, form: CallForm, reasoning: str, demand: ToolDemand) -> Iterable[str]:
        """Yield the rules of an answer that is content, or calls after some content."""
        opening = form.opening
        if isinstance(opening, Text):  # the whole answer is calls
            yield f"start: {reasoning} (CONTENT | {self.calls(form, demand)})"
            yield rf"CONTENT: /\s*([^\s{opening.text}](.|\n)*)?/"
        elif self._model.special_id(opening.text) is not None:
            yield rf"start: {reasoning} /(.|\n)*/ ({self.calls(form, demand)})?"
        else:
            yield f"start: {reasoning} (CONTENT | before {self.calls(form, demand, is_opened=True)})"
            yield rf"before[suffix={json.dumps(opening.text)}]: /(.|\n)*/"
            yield rf"CONTENT: /(.|\n)*/ & ~/(.|\n)*{literal_pattern(opening.text)}(.|\n)*/"

    def _arguments(self, elements: Sequence[Element], rule: str, tool: CallableTool) -> Iterable[str]:
        tagged = next((element for element in elements if isinstance(element, TaggedArguments)), None)
        if tagged is None:
            return json_rules(rule, tool.parameters)
        try:
            return list(tagged_rules(rule, tool.parameters, tagged, self._named))
        except InvalidGuideError as error:
            raise InvalidGuideError(f"tool {tool.name}: {error}") from error

    def _sequence(self, elements: Sequence[Element], arguments: str = "") -> str:
        return " ".join(element_text(element, self._named) or arguments for element in elements)

    def _named(self, mark: str) -> str:
        number = self._model.special_id(mark)
        return json.dumps(mark, ensure_ascii=False) if number is None else f"<[{number}]>"
