"""Forced calls whose arguments are tagged: random ones are read back as arguments that their schemas allow."""

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from seamlessflow.core.families import ModelFamily
from seamlessflow.core.guidance.answer_grammar import CallableTool, ToolDemand, answer_guide
from seamlessflow.core.guidance.guide import Guide, InvalidGuideError, guide_make
from seamlessflow.core.guidance.masks import TokenNotAllowedError
from seamlessflow.core.guidance.matching import Matcher
from seamlessflow.data_plane.turns.rendering.parsers.deltas import parse_whole
from seamlessflow.data_plane.turns.rendering.parsers.families import family_get
from tests.fixtures.guidance import END, allowed_tokens
from tests.unit.core.guidance.test_answer_grammar import Model, model_of, offered

CLOSINGS = {ModelFamily.QWEN3_CODER: "\n</parameter>\n", ModelFamily.GLM: "</arg_value>"}
MAX_TOKENS = 1500

PARAMETERS: dict[str, dict[str, Any]] = {
    "texts": {
        "properties": {
            "free": {"type": "string"},
            "bounded": {"type": "string", "minLength": 2, "maxLength": 5},
        },
        "required": ["bounded"],
    },
    "numbers": {
        "properties": {
            "count": {"type": "integer", "minimum": 3, "maximum": 40},
            "share": {"type": "number", "minimum": 0, "maximum": 1},
            "sure": {"type": "boolean"},
        },
        "required": ["count", "share", "sure"],
    },
    "structures": {
        "properties": {
            "points": {"type": "array", "items": {"$ref": "#/$defs/point"}, "minItems": 1, "maxItems": 2},
            "place": {"$ref": "#/$defs/point"},
        },
        "required": ["points", "place"],
        "$defs": {
            "point": {
                "type": "object",
                "properties": {"x": {"enum": [1, 2]}, "name": {"type": "string", "maxLength": 3}},
                "required": ["x", "name"],
                "additionalProperties": False,
            }
        },
    },
    "choices": {
        "properties": {
            "word": {"type": "string", "enum": ["yes", "yesterday", 'a/b"é']},
            "mixed": {"enum": ["a", 1, None, True]},
            "constant": {"const": "only"},
            "optional_word": {
                "anyOf": [{"type": "string", "enum": ["x", "y"]}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["word", "mixed", "constant", "optional_word"],
    },
    "unions": {
        "properties": {
            "text_or_null": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "bounded_or_null": {"type": ["string", "null"], "minLength": 5, "maxLength": 6},
            "text_or_number": {"type": ["string", "integer", "boolean"]},
            "text_or_list": {
                "anyOf": [
                    {"type": "string", "maxLength": 8},
                    {
                        "type": "array",
                        "items": {"type": "integer", "maximum": 9, "minimum": 0},
                        "maxItems": 2,
                    },
                ]
            },
            "anything": {},
        },
        "required": ["bounded_or_null", "text_or_list", "unnamed"],
    },
    "nothing": {"properties": {}},
    "anything": {},
}


@pytest.fixture(params=[True, False], ids=["special", "plain"])
def is_special(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=[ModelFamily.QWEN3_CODER, ModelFamily.GLM])
def model(request: pytest.FixtureRequest, is_special: bool, tmp_path: Path) -> Model:
    return model_of(request.param, tmp_path, is_special=is_special)


@pytest.mark.parametrize("kind", PARAMETERS)
def test_arguments_are_read_back_as_their_schema_allows(model: Model, kind: str) -> None:
    parameters = {"type": "object"} | PARAMETERS[kind]
    tool = CallableTool("f", parameters)
    wanted = answer_guide(
        ToolDemand("tool_choice", tools=[tool], is_parallel=False), model.guided(), starts_in_reasoning=False
    )
    guide = guide_make(wanted, end_token_ids=[END])
    for seed in range(12):
        text = model.tokenizer.decode(closing_answer(model, guide, seed=seed)[:-1], skip_special_tokens=False)
        parsed = parse_whole(family_get(model.family).parser(tools=offered([tool])), text)
        assert not parsed.content, text
        (call,) = parsed.tool_calls
        arguments = json.loads(call.arguments)
        jsonschema.validate(arguments, parameters)
        assert kind == "anything" or arguments.keys() <= parameters["properties"].keys() | {"unnamed"}


def closing_answer(model: Model, guide: Guide, *, seed: int) -> list[int]:
    """Draw tokens from the masks up to the end, without reasoning.

    By chance alone a free text would rarely meet the tag that closes it.
    """
    matcher, chance = model.vocabulary.matcher(guide), random.Random(seed)
    closing, thought = (model.tokenizer.encode(text).ids for text in (CLOSINGS[model.family], "<think>"))
    answer: list[int] = []
    while not matcher.is_ended:
        assert len(answer) < MAX_TOKENS
        drawn = closing if chance.random() < 0.3 and accepts(matcher, closing) else []
        if not drawn:
            allowed = allowed_tokens(matcher, num_tokens=model.vocabulary.num_tokens)
            drawn = [chance.choice([token for token in allowed if token not in thought])]
            matcher.consume(drawn[0])
        answer += drawn
    return answer


def accepts(matcher: Matcher, token_ids: list[int]) -> bool:
    """Take the tokens if all of them fit, or none of them."""
    for num_taken, token_id in enumerate(token_ids):
        try:
            matcher.consume(token_id)
        except TokenNotAllowedError:
            matcher.rollback(num_taken)
            return False
    return True


@pytest.mark.parametrize(
    "schema,why",
    [
        ({"type": "string", "pattern": "a+"}, "pattern of a string"),
        ({"type": "string", "format": "date"}, "format of a string"),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer", "maximum": 9}]},
            "free text beside certain numbers",
        ),
        ({"anyOf": [{"enum": ["a"]}, {"type": "integer"}]}, "strings beside numbers"),
        ({"enum": ["1", 2]}, "'1' cannot stand as plain text"),
        ({"enum": ["</tool_call>"]}, "a mark of the model's calls"),
        ({"anyOf": [{"$ref": "#/$defs/loop"}]}, "must be an object"),
        ({"type": ["string", 3]}, "type must be a name or names"),
        (False, "must be an object"),
    ],
)
def test_a_schema_that_plain_text_cannot_follow_is_refused_with_its_parameter(
    model: Model, schema: Any, why: str
) -> None:
    parameters = {
        "properties": {"a": schema},
        "$defs": {"loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"type": "string"}]}},
    }
    demand = ToolDemand("tool_choice", tools=[CallableTool("f", parameters)])
    with pytest.raises(InvalidGuideError, match=f"tool f: parameter a: .*{why}"):
        answer_guide(demand, model.guided(), starts_in_reasoning=False)


@pytest.mark.parametrize(
    "parameters,why",
    [
        ({"properties": {"a<": {}}}, "a parameter of this model"),
        ({"anyOf": [{"required": ["a"]}]}, "anyOf of a tool's parameters"),
        ({"type": "array"}, "type of a tool's parameters"),
    ],
)
def test_parameters_that_cannot_be_tagged_are_refused(
    model: Model, parameters: dict[str, Any], why: str
) -> None:
    demand = ToolDemand("tool_choice", tools=[CallableTool("f", parameters)])
    with pytest.raises(InvalidGuideError, match=why):
        answer_guide(demand, model.guided(), starts_in_reasoning=False)


def test_text_may_look_like_a_tag_but_never_end_its_value(model: Model) -> None:
    demand = ToolDemand(
        "tool_choice", tools=[CallableTool("f", {"properties": {"a": {"type": "string"}}, "required": ["a"]})]
    )
    wanted = answer_guide(demand, model.guided(), starts_in_reasoning=False)
    matcher = model.vocabulary.matcher(guide_make(wanted, end_token_ids=[END]))
    text = {
        ModelFamily.QWEN3_CODER: "<tool_call>\n<function=f>\n<parameter=a>\n</para </function <b>\n\n</parameter>\n",
        ModelFamily.GLM: "<tool_call>f\n<arg_key>a</arg_key><arg_value>\n</arg </arg_key ></b></arg_value>",
    }[model.family]
    matcher.replay(model.tokenizer.encode(text).ids)
