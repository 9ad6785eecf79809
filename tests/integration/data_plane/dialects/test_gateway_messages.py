"""Anthropic's own client, unmodified, against a real gateway process."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

TOOLS: Any = [{"name": "calc", "description": "adds", "input_schema": {"type": "object"}}]
ARGUMENTS = '{"name": "calc", "arguments": {"b": 34.0, "a": 12}}'
CALLS = (
    f"<think>I add.</think>Let me see.\n<tool_call>{ARGUMENTS}</tool_call><tool_call>{ARGUMENTS}</tool_call>"
)
ROWS = "SELECT kind, parent_index, drift, finish_reason FROM trajectory_node ORDER BY node_index"
TWO_TURNS = [
    (0, None, "clean", None),
    (2, 0, None, "tool_calls"),
    (1, 1, "clean", None),
    (2, 2, None, "stop"),
]


def answer(prompt: str) -> str:
    return "It is 46.<|im_end|>" if "tool\n46" in prompt else f"{CALLS}<|im_end|>"


@pytest.fixture
async def key(gateway_world: GatewayWorld) -> str:
    await gateway_world.start_engines(answer)
    (group,) = await gateway_world.lease(gateway_world.make_phase(Role.AGENT), max_sessions=2)
    session_key: str = group["sessions"][0]["api_key"]
    return session_key


@pytest.fixture
async def client(gateway_world: GatewayWorld, key: str) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=gateway_world.base_url, api_key=key, max_retries=0
    ) as client:
        yield client


async def ask(client: anthropic.AsyncAnthropic, *, is_streamed: bool, **fields: Any) -> Any:
    if not is_streamed:
        return await client.messages.create(**fields)
    async with client.messages.stream(**fields) as stream:
        return await stream.get_final_message()


def system(number: int) -> Any:
    """Return a system prompt with a line that changes with every request."""
    marker = {"type": "text", "text": f"x-anthropic-billing-header: cch={number};"}
    return [marker, {"type": "text", "text": "You add.", "cache_control": {"type": "ephemeral"}}]


def results_of(message: Any) -> Any:
    """Return a user message with the result of every call."""
    calls = [block for block in message.content if block.type == "tool_use"]
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "46"} for call in calls],
    }


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("thinking", [{"type": "disabled"}, {"type": "adaptive"}])
async def test_an_agent_with_tools_joins_its_tree_cleanly(
    gateway_world: GatewayWorld, client: anthropic.AsyncAnthropic, is_streamed: bool, thinking: Any
) -> None:
    messages: Any = [{"role": "user", "content": "12+34?"}]
    fixed: Any = {"model": "claude-x", "max_tokens": 190, "tools": TOOLS, "thinking": thinking}
    first = await ask(client, is_streamed=is_streamed, messages=messages, system=system(1), **fixed)
    messages += [{"role": "assistant", "content": first.content}, results_of(first)]
    second = await ask(client, is_streamed=is_streamed, messages=messages, system=system(2), **fixed)

    shown = ["thinking"] if thinking["type"] == "adaptive" else []
    assert [block.type for block in first.content] == [*shown, "text", "tool_use", "tool_use"]
    assert first.content[-1].input == {"a": 12, "b": 34.0}
    assert (first.stop_reason, second.stop_reason) == ("tool_use", "end_turn")
    assert second.content[0].text == "It is 46."
    assert first.usage.cache_read_input_tokens == 0
    assert second.usage.cache_read_input_tokens == first.usage.input_tokens + first.usage.output_tokens
    assert second.usage.input_tokens > 0
    assert (
        first.usage.output_tokens_details.thinking_tokens
        > second.usage.output_tokens_details.thinking_tokens
        == 0
    )
    assert gateway_world.sql(ROWS) == TWO_TURNS


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_tool_runner_that_asks_for_a_thread_goes_on_without(
    gateway_world: GatewayWorld, client: anthropic.AsyncAnthropic, is_streamed: bool
) -> None:
    @anthropic.beta_async_tool
    async def calc(a: int, b: int) -> str:
        """Add."""
        return str(a + b)

    question: Any = {"role": "user", "content": "12+34?"}
    runner: Any = client.beta.messages.tool_runner(
        model="claude-x", max_tokens=190, tools=[calc], messages=[question], stream=is_streamed
    )
    answers = [await turn.get_final_message() if is_streamed else turn async for turn in runner]

    assert [block.type for block in answers[-1].content] == ["text"]
    assert gateway_world.sql(ROWS) == TWO_TURNS


async def test_tokens_are_counted_without_a_record(
    gateway_world: GatewayWorld, client: anthropic.AsyncAnthropic
) -> None:
    asked: Any = {"model": "x", "messages": [{"role": "user", "content": "12+34?"}], "system": "You add."}
    counted = await client.messages.count_tokens(**asked)

    assert gateway_world.sql(ROWS) == []
    answered = await client.messages.create(max_tokens=5, **asked)
    assert answered.usage.input_tokens == counted.input_tokens
    assert answered.stop_reason == "max_tokens"


async def test_refusals_have_the_form_that_the_client_reads(
    gateway_world: GatewayWorld, client: anthropic.AsyncAnthropic
) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}
    messages: Any = [{"role": "user", "content": [image]}]
    with pytest.raises(anthropic.BadRequestError) as refused:
        await client.messages.create(model="x", max_tokens=5, messages=messages)
    error: Any = refused.value.body
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert (error["error"]["param"], error["error"]["code"]) == (
        "messages[0].content[0]",
        "unsupported_parameter",
    )

    with pytest.raises(anthropic.AuthenticationError):
        await client.with_options(api_key="sfk_none").messages.count_tokens(
            model="x", messages=[{"role": "user", "content": "?"}]
        )
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+ maximum"):
        await client.messages.create(
            model="x", max_tokens=5, messages=[{"role": "user", "content": "x" * 3000}]
        )


async def test_the_key_may_come_as_a_bearer_token(gateway_world: GatewayWorld, key: str) -> None:
    async with anthropic.AsyncAnthropic(
        base_url=gateway_world.base_url, auth_token=key, api_key=None, max_retries=0
    ) as client:
        raw = await client.messages.with_raw_response.create(
            model="x",
            max_tokens=5,
            messages=[{"role": "user", "content": "?"}],
            metadata={"user_id": "u"},
            extra_body={"temperature": 0.5},
        )
    assert raw.headers["x-seamlessflow-ignored"] == "metadata"
    assert gateway_world.sql("SELECT flags FROM trajectory_node WHERE kind = 2") == [
        ({"overridden": {"temperature": 0.5}},)
    ]
