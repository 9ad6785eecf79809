"""OpenAI's client, unmodified, asks for responses of a real gateway process."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

TOOLS: Any = [
    {"type": "function", "name": "calc", "parameters": {"type": "object"}, "strict": False},
    {"type": "custom", "name": "note", "description": "writes down"},
]
CALLS = (
    "<think>I add.</think>Let me see.\n"
    '<tool_call>{"name": "calc", "arguments": {"b": 34, "a": 12}}</tool_call>'
    '<tool_call>{"name": "note", "arguments": {"input": "12 + 34"}}</tool_call>'
)
ROWS = "SELECT kind, parent_index, drift, finish_reason FROM trajectory_node ORDER BY node_index"


def answer(prompt: str) -> str:
    return "It is 46.<|im_end|>" if "tool\n46" in prompt else f"{CALLS}<|im_end|>"


@pytest.fixture
async def client(gateway_world: GatewayWorld) -> AsyncIterator[openai.AsyncOpenAI]:
    await gateway_world.start_engines(answer)
    (group,) = await gateway_world.lease(gateway_world.make_phase(Role.AGENT), max_sessions=2)
    async with openai.AsyncOpenAI(
        base_url=gateway_world.base_url + "/v1", api_key=group["sessions"][0]["api_key"], max_retries=0
    ) as client:
        yield client


async def ask(client: openai.AsyncOpenAI, *, is_streamed: bool, **fields: Any) -> Any:
    if not is_streamed:
        return await client.responses.create(**fields)
    async with client.responses.stream(**fields) as stream:
        return await stream.get_final_response()


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_agent_with_tools_joins_its_tree_cleanly(
    gateway_world: GatewayWorld, client: openai.AsyncOpenAI, is_streamed: bool
) -> None:
    fixed: Any = {
        "model": "gpt-x",
        "instructions": "You add.",
        "tools": TOOLS,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    items: Any = [{"role": "user", "content": "12+34?"}]
    first = await ask(client, is_streamed=is_streamed, input=items, **fixed)
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items += [
        {"type": "function_call_output", "call_id": first.output[2].call_id, "output": "46"},
        {"type": "custom_tool_call_output", "call_id": first.output[3].call_id, "output": "46"},
    ]
    second = await ask(client, is_streamed=is_streamed, input=items, **fixed)

    assert [item.type for item in first.output] == [
        "reasoning", "message", "function_call", "custom_tool_call",
    ]  # fmt: skip
    assert first.output[0].encrypted_content
    assert first.output[3].input == "12 + 34"
    assert (first.status, second.output_text) == ("completed", "It is 46.")
    assert (
        second.usage.input_tokens
        > second.usage.input_tokens_details.cached_tokens
        == first.usage.total_tokens
    )
    assert first.usage.output_tokens_details.reasoning_tokens > 0
    assert gateway_world.sql(ROWS) == [
        (0, None, "clean", None),
        (2, 0, None, "tool_calls"),
        (1, 1, "clean", None),
        (2, 2, None, "stop"),
    ]


async def test_a_text_is_answered_and_what_is_stored_elsewhere_refused(client: openai.AsyncOpenAI) -> None:
    cut = await client.responses.create(model="x", input="12+34?", max_output_tokens=3)

    assert (cut.status, cut.incomplete_details and cut.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="x", input="?", previous_response_id=cut.id)
    with pytest.raises(openai.BadRequestError) as too_long:
        await client.responses.create(model="x", input="x" * 3000)
    assert (too_long.value.param, too_long.value.code) == ("input", "context_length_exceeded")
    assert (refused.value.param, refused.value.code) == ("previous_response_id", "unsupported_parameter")
