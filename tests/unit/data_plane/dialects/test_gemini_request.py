"""Requests of Google's API: schemas, demands, and which functions an answer must call."""

import json
from typing import Any

import pytest

from seamlessflow.data_plane.dialects.gemini.request import GeminiRequest, gemini_request_parse
from seamlessflow.data_plane.dialects.gemini.schemas import json_schema
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.turns.trajectory_manager.plan import Conversation

FUNCTIONS = [{"functionDeclarations": [{"name": "look"}, {"name": "add"}]}]


def parsed(**fields: Any) -> GeminiRequest:
    body = {"contents": [{"role": "user", "parts": [{"text": "12+34?"}]}]} | fields
    return gemini_request_parse(json.dumps(body).encode(), temperature=1.0)


def calling(**config: Any) -> dict[str, Any]:
    return {"functionCallingConfig": config}


def test_a_schema_of_google_becomes_a_json_schema() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {
            "n": {"type": "INTEGER", "format": "int32"},
            "names": {"type": "ARRAY", "items": {"type": "STRING", "nullable": True}, "minItems": "1"},
        },
        "propertyOrdering": ["names", "n"],
        "required": ["n"],
    }
    found = json_schema(schema)

    names = {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "minItems": 1}
    assert found == {
        "type": "object",
        "properties": {"names": names, "n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    assert list(found["properties"]) == ["names", "n"]


@pytest.mark.parametrize(
    "config,field",
    [
        ({"responseMimeType": "application/json"}, "generationConfig.responseMimeType"),
        ({"responseSchema": {"type": "STRING"}}, "generationConfig.responseSchema"),
        ({"responseJsonSchema": {"type": "string"}}, "generationConfig.responseJsonSchema"),
    ],
)
def test_an_answer_follows_the_schema_of_the_request(config: dict[str, Any], field: str) -> None:
    demand = parsed(generationConfig=config).demand

    assert demand is not None
    assert demand.field == field


def test_any_forces_a_call_of_the_functions_that_are_allowed() -> None:
    both = parsed(tools=FUNCTIONS, toolConfig=calling(mode="ANY"))
    one = parsed(tools=FUNCTIONS, toolConfig=calling(mode="any", allowedFunctionNames=["add"]))
    none = parsed(tools=FUNCTIONS, toolConfig=calling(mode="NONE"))
    free = parsed(tools=FUNCTIONS)

    assert both.demand is not None
    assert one.demand is not None
    assert [tool.name for tool in both.demand.tools] == ["look", "add"]
    assert [tool.name for tool in one.demand.tools] == ["add"]
    assert (none.conversation.tools, none.demand, free.demand) == (None, None, None)  # type: ignore[union-attr]
    assert len(one.conversation.tools or ()) == 2  # type: ignore[union-attr]


def test_sampling_values_are_overridden_penalties_kept_and_thoughts_shown_on_request() -> None:
    config = {"temperature": 0.2, "seed": 7, "presencePenalty": 0.5, "candidateCount": 2}
    request = parsed(generationConfig=config | {"thinkingConfig": {"includeThoughts": True}})

    assert request.flags == {"seed": 7, "overridden": {"temperature": 0.2}}
    assert request.reshaping == {"presence_penalty": 0.5}
    assert (request.num_choices, request.options.has_thoughts, request.ignored) == (2, True, ())


@pytest.mark.parametrize("thought", [{"thought": True}, {}])
def test_a_signature_without_its_text_says_nothing(thought: dict[str, Any]) -> None:
    question = {"role": "user", "parts": [{"text": "?"}]}
    answer = {"role": "model", "parts": [{**thought, "thoughtSignature": "x"}, {"text": "46"}]}
    said: Any
    try:
        conversation = parsed(contents=[question, answer, question]).conversation
        assert isinstance(conversation, Conversation)
        (_, said, _) = conversation.messages
    except ApiError as error:
        said = {"content": str(error)}
    assert (said["content"], said.get("reasoning_content", "")) == ("46", "")
