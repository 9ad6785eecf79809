"""Guides of forced and strict answers: random answers are read by the gateway's parser as what was demanded."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer

from seamlessflow.core.families import ModelFamily
from seamlessflow.core.guidance.answer_grammar import CallableTool, GuidedModel, ToolDemand, answer_guide
from seamlessflow.core.guidance.guide import InvalidGuideError, guide_make
from seamlessflow.core.guidance.masks import TokenNotAllowedError
from seamlessflow.core.guidance.matching import Vocabulary
from seamlessflow.data_plane.turns.rendering.parsers.deltas import ParsedOutput, parse_whole
from seamlessflow.data_plane.turns.rendering.parsers.families import family_get
from tests.fixtures.guidance import END, NUM_TOKENS, OTHER_END, random_answer
from tests.fixtures.tiny_text import write_tiny_text

FORCED = [
    ModelFamily.HERMES,
    ModelFamily.QWEN3_CODER,
    ModelFamily.GLM,
    ModelFamily.LLAMA3,
    ModelFamily.DEEPSEEK_V3,
    ModelFamily.DEEPSEEK_V31,
    ModelFamily.KIMI_K2,
    ModelFamily.MISTRAL,
]
TOOLS = [
    CallableTool(
        "add",
        {
            "properties": {"a": {"$ref": "#/$defs/small"}, "b": {"enum": ['ä"', 1]}},
            "required": ["a", "b"],
            "additionalProperties": False,
            "$defs": {"small": {"type": "integer", "minimum": 0, "maximum": 9}},
        },
    ),
    CallableTool("now", {"type": "object", "properties": {}, "additionalProperties": False}),
]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}},
    "required": ["a"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Model:
    family: ModelFamily
    vocabulary: Vocabulary
    tokenizer: Tokenizer

    def guided(self, *, may_reason: bool = True) -> GuidedModel:
        known = family_get(self.family)
        return GuidedModel(
            family=self.family,
            think=(known.think, known.end_think),
            has_token=lambda text: self.tokenizer.token_to_id(text) is not None,
            special_id=self.vocabulary.special_id,
            may_reason=may_reason,
        )

    def answers(
        self, demand: ToolDemand, *, num: int = 25, starts_in_reasoning: bool = False
    ) -> list[ParsedOutput]:
        """Return complete answers as the gateway's parser reads them; some random ones never end."""
        wanted = answer_guide(demand, self.guided(), starts_in_reasoning=starts_in_reasoning)
        guide = guide_make(wanted, end_token_ids=[END, OTHER_END])
        found = []
        for seed in range(num):
            ids = random_answer(self.vocabulary, guide, seed=seed, max_tokens=1500)
            if ids[-1] in (END, OTHER_END):
                text = self.tokenizer.decode(ids[:-1], skip_special_tokens=False)
                parser = family_get(self.family).parser(
                    tools=offered(demand.tools), starts_in_reasoning=starts_in_reasoning
                )
                found.append(parse_whole(parser, text))
        assert len(found) > num // 4
        return found


def offered(tools: Sequence[CallableTool]) -> list[dict[str, Any]]:
    """Return tools as a request offers them."""
    return [
        {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}} for tool in tools
    ]


def model_of(family: ModelFamily, folder: Path, *, is_special: bool) -> Model:
    """Return a tiny tokenizer with the marks of the family: as special tokens, or as tokens that are plain text."""
    write_tiny_text(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    content = json.loads(tokenizer.to_str())
    marks = family_get(family).marks
    for token in content["added_tokens"]:
        token["special"] = token["special"] and (is_special or token["content"] not in marks)
    tokenizer = Tokenizer.from_str(json.dumps(content))
    known = [mark for mark in sorted(marks) if tokenizer.token_to_id(mark) is None]
    tokenizer.add_tokens([AddedToken(mark, special=is_special, normalized=False) for mark in known])
    return Model(family, Vocabulary(tokenizer.to_str(), num_tokens=NUM_TOKENS + 32), tokenizer)


@pytest.fixture(params=FORCED)
def family(request: pytest.FixtureRequest) -> ModelFamily:
    found: ModelFamily = request.param
    return found


@pytest.fixture(params=[True, False], ids=["special", "plain"])
def model(request: pytest.FixtureRequest, family: ModelFamily, tmp_path: Path) -> Model:
    return model_of(family, tmp_path, is_special=request.param)


def assert_valid(parsed: ParsedOutput) -> None:
    for call in parsed.tool_calls:
        arguments = json.loads(call.arguments)
        assert (
            arguments == {}
            if call.name == "now"
            else (arguments.keys() == {"a", "b"} and 0 <= arguments["a"] <= 9)
        )


@pytest.mark.parametrize("is_parallel", [False, True])
@pytest.mark.parametrize("starts_in_reasoning", [False, True])
def test_a_forced_answer_is_calls_and_nothing_else(
    model: Model, is_parallel: bool, starts_in_reasoning: bool
) -> None:
    demand = ToolDemand("tool_choice", tools=TOOLS, is_parallel=is_parallel)
    answers = model.answers(demand, starts_in_reasoning=starts_in_reasoning)
    nums = {len(parsed.tool_calls) for parsed in answers}
    for parsed in answers:
        assert not parsed.content
        assert_valid(parsed)
    assert min(nums) == 1
    assert (max(nums) > 1) == is_parallel


def test_a_named_tool_is_the_only_one(model: Model) -> None:
    answers = model.answers(ToolDemand("tool_choice", tools=TOOLS[1:], is_parallel=False))
    assert {call.name for parsed in answers for call in parsed.tool_calls} == {"now"}


def test_strict_tools_may_be_called_by_their_schemas_only(model: Model) -> None:
    answers = model.answers(ToolDemand("tools", tools=TOOLS, may_answer=True), num=60)
    for parsed in answers:
        assert_valid(parsed)
    assert any(not parsed.tool_calls for parsed in answers)


@pytest.mark.parametrize("starts_in_reasoning", [False, True])
def test_content_follows_its_schema_after_reasoning(model: Model, starts_in_reasoning: bool) -> None:
    answers = model.answers(
        ToolDemand("response_format", schema=SCHEMA), starts_in_reasoning=starts_in_reasoning
    )
    for parsed in answers:
        assert json.loads(parsed.content)["a"] in (1, 2)
        assert not parsed.tool_calls
    if starts_in_reasoning:
        assert any(parsed.reasoning for parsed in answers)


def test_a_family_without_a_grammar_of_calls_is_refused_by_name(tmp_path: Path) -> None:
    model = model_of(ModelFamily.GPT_OSS, tmp_path, is_special=True)
    with pytest.raises(InvalidGuideError, match="gpt_oss"):
        answer_guide(ToolDemand("tool_choice", tools=TOOLS), model.guided(), starts_in_reasoning=False)


@pytest.mark.parametrize(
    "tools", [[CallableTool("f", {"type": "object", "properties": {"a": {"type": "strange"}}})]]
)
def test_schemas_that_cannot_be_followed_are_refused(model: Model, tools: Sequence[CallableTool]) -> None:
    wanted: dict[str, Any] = answer_guide(
        ToolDemand("tools", tools=tools), model.guided(), starts_in_reasoning=False
    )
    with pytest.raises(InvalidGuideError):
        model.vocabulary.matcher(guide_make(wanted, end_token_ids=[END]))


def num_tokens_of_thought(model: Model, demand: ToolDemand, *, may_reason: bool, is_open: bool) -> int:
    """Return how many tokens of a thought without an end a guide accepts; -1 if it accepts no thought at all."""
    wanted = answer_guide(demand, model.guided(may_reason=may_reason), starts_in_reasoning=is_open)
    matcher = model.vocabulary.matcher(guide_make(wanted, end_token_ids=[END]))
    opening = [] if is_open else model.tokenizer.encode(family_get(model.family).think).ids
    thought = model.tokenizer.encode("x" * 100).ids
    for number, token in enumerate([*opening, *thought]):
        try:
            matcher.consume(token)
        except TokenNotAllowedError:
            return number - len(opening)
    return len(thought)


def test_reasoning_before_a_demanded_form_is_bounded_or_barred(model: Model) -> None:
    forced = ToolDemand("tool_choice", tools=TOOLS, max_reasoning_chars=40)
    for demand in (forced, ToolDemand("response_format", schema=SCHEMA, max_reasoning_chars=40)):
        for is_open in (True, False):
            taken = num_tokens_of_thought(model, demand, may_reason=True, is_open=is_open)
            assert 0 < taken <= 40
        assert num_tokens_of_thought(model, demand, may_reason=False, is_open=False) < 0


def test_reasoning_before_a_free_answer_is_not_bounded(model: Model) -> None:
    free = ToolDemand("tools.strict", tools=TOOLS, may_answer=True, max_reasoning_chars=40)
    assert num_tokens_of_thought(model, free, may_reason=False, is_open=True) > 40
