"""Google's Gemini API at a real gateway process, as its clients write requests."""

import json
from typing import Any

import pytest

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

CALLS = (
    "<think>I add.</think>Let me see.\n"
    '<tool_call>{"name": "calc", "arguments": {"b": 34, "a": 12}}</tool_call>'
    '<tool_call>{"name": "calc", "arguments": {"a": 1}}</tool_call>'
)
ROWS = "SELECT kind, parent_index, drift, finish_reason FROM trajectory_node ORDER BY node_index"
TOOLS = [{"functionDeclarations": [{"name": "calc", "parameters": {"type": "OBJECT", "properties": {}}}]}]
QUESTION = {"role": "user", "parts": [{"text": "12+34?"}]}
THOUGHTS = {"thinkingConfig": {"includeThoughts": True}}


def answer(prompt: str) -> str:
    return "It is 46.<|im_end|>" if "tool\n46" in prompt else f"{CALLS}<|im_end|>"


class Asking:
    """Sends requests to one session, by the key that Google's clients send."""

    def __init__(self, world: GatewayWorld, api_key: str) -> None:
        self._world, self._key = world, api_key

    async def post(self, what: str, body: Any, *, base: str = "/v1beta") -> tuple[int, str, str]:
        """Return the status, the header of what was ignored, and the text."""
        assert self._world.http is not None
        url = f"{self._world.base_url}{base}/models/{what}"
        async with self._world.http.post(url, json=body, headers={"x-goog-api-key": self._key}) as response:
            return response.status, response.headers.get("x-seamlessflow-ignored", ""), await response.text()

    async def get(self, path: str) -> tuple[int, Any]:
        assert self._world.http is not None
        mark = "&" if "?" in path else "?"
        url = f"{self._world.base_url}{path}{mark}key={self._key}"
        async with self._world.http.get(url) as response:
            return response.status, await response.json()


@pytest.fixture
async def asking(gateway_world: GatewayWorld) -> Asking:
    await gateway_world.start_engines(answer)
    (group,) = await gateway_world.lease(gateway_world.make_phase(Role.AGENT), max_sessions=2)
    return Asking(gateway_world, group["sessions"][0]["api_key"])


def pieces_of(way: str, text: str) -> list[dict[str, Any]]:
    if way == "whole":
        return [json.loads(text)]
    if way == "list":
        found: list[dict[str, Any]] = json.loads(text)
        return found
    return [json.loads(event.removeprefix("data: ")) for event in text.strip().split("\n\n")]


WAYS = {
    "whole": "any:generateContent",
    "list": "any:streamGenerateContent",
    "events": "any:streamGenerateContent?alt=sse",
}


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_with_tools_joins_its_tree_cleanly(
    gateway_world: GatewayWorld, asking: Asking, way: str, has_ids: bool
) -> None:
    body: Any = {"contents": [QUESTION], "tools": TOOLS, "generationConfig": THOUGHTS}
    status, _, text = await asking.post(WAYS[way], body)
    first = pieces_of(way, text)
    parts = [part for piece in first for part in piece["candidates"][0]["content"]["parts"]]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    if not has_ids:
        for call in calls:
            del call["id"]
    results = [
        {"functionResponse": {**call, "response": {"result": "46"}}}
        for call in ({k: v for k, v in call.items() if k != "args"} for call in calls)
    ]
    body["contents"] += [{"role": "model", "parts": parts}, {"role": "user", "parts": results}]
    _, _, text = await asking.post(WAYS[way], body)
    second = pieces_of(way, text)

    assert status == 200
    assert "".join(part["text"] for part in parts if part.get("thought")) == "I add."
    assert [call["args"] for call in calls] == [{"b": 34, "a": 12}, {"a": 1}]
    assert first[-1]["candidates"][0]["finishReason"] == "STOP"
    said = [part["text"] for piece in second for part in piece["candidates"][0]["content"]["parts"]]
    assert "".join(said) == "It is 46."
    before, after = first[-1]["usageMetadata"], second[-1]["usageMetadata"]
    assert after["cachedContentTokenCount"] == before["totalTokenCount"] < after["promptTokenCount"]
    assert before["thoughtsTokenCount"] > 0
    assert gateway_world.sql(ROWS) == [
        (0, None, "clean", None),
        (2, 0, None, "tool_calls"),
        (1, 1, "clean", None),
        (2, 2, None, "stop"),
    ]


async def test_names_in_snake_case_a_base_url_with_v1_and_fields_without_effect(asking: Asking) -> None:
    body = {
        "system_instruction": {"parts": [{"text": "You add."}]},
        "contents": [{"parts": {"text": "12+34?"}}],
        "generation_config": {"max_output_tokens": 3, "thinking_config": {"thinking_budget": 5}},
        "safetySettings": [],
        "tools": [{"google_search": {}}],
    }
    status, ignored, text = await asking.post("any:generateContent", body, base="/v1/v1beta")
    answered = json.loads(text)

    assert (status, answered["candidates"][0]["finishReason"]) == (200, "MAX_TOKENS")
    assert ignored == ("safetySettings, generationConfig.thinkingConfig.thinkingBudget, tools.googleSearch")


async def test_tokens_are_counted_and_the_model_is_shown(asking: Asking) -> None:
    _, _, counted = await asking.post("any:countTokens", {"contents": [QUESTION]})
    _, _, text = await asking.post("any:generateContent", {"contents": [QUESTION]})
    status, listed = await asking.get("/v1beta/models")
    _, card = await asking.get("/v1beta/models/tiny")
    missing, refusal = await asking.get("/v1beta/models/gemini-3")

    num_prompt = json.loads(text)["usageMetadata"]["promptTokenCount"]
    assert json.loads(counted) == {"totalTokens": num_prompt}
    assert (status, listed["models"], card["name"]) == (200, [card], "models/tiny")
    assert card["inputTokenLimit"] == 512
    assert (missing, refusal["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "fields,word",
    [
        ({"cachedContent": "c"}, "cachedContent"),
        ({"contents": [{"role": "robot", "parts": []}]}, "contents[0].role"),
        ({"contents": [{"parts": [{"inlineData": {}}]}]}, "contents[0].parts[0]"),
        ({"contents": [{"parts": [{"text": "x" * 3000}]}]}, "exceeds the maximum number of tokens"),
        ({"tools": [{"codeExecution": {}}]}, "tools[0]"),
        ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, "toolConfig.functionCallingConfig"),
        ({"generationConfig": {"responseModalities": ["IMAGE"]}}, "generationConfig.responseModalities"),
        ({"generationConfig": {"temperature": 5}}, "temperature"),
    ],
)
async def test_what_cannot_be_served_is_refused_in_the_words_of_the_api(
    asking: Asking, fields: dict[str, Any], word: str
) -> None:
    status, _, text = await asking.post("any:generateContent", {"contents": [QUESTION]} | fields)
    error = json.loads(text)["error"]

    assert (status, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert word in error["message"]


async def test_an_unknown_key_and_an_unknown_action_are_refused_in_the_form_of_the_api(
    gateway_world: GatewayWorld, asking: Asking
) -> None:
    status, _, text = await Asking(gateway_world, "sfs_x").post("m:generateContent", {"contents": [QUESTION]})
    unknown, _, said = await asking.post("m:embedContent", {})

    assert (status, json.loads(text)["error"]["status"]) == (401, "UNAUTHENTICATED")
    assert (unknown, json.loads(said)["error"]["status"]) == (404, "NOT_FOUND")
