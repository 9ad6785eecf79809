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
JOINED = [
    (0, None, "clean", None),
    (2, 0, None, "tool_calls"),
    (1, 1, "clean", None),
    (2, 2, None, "stop"),
]


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
    assert gateway_world.sql(ROWS) == JOINED


def results_of(response: Any) -> list[Any]:
    """Return what the tools of a response's calls answer."""
    return [
        {"type": f"{item.type}_output", "call_id": item.call_id, "output": "46"}
        for item in response.output
        if hasattr(item, "call_id")
    ]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("way", ["previous response", "items"])
async def test_answers_that_the_session_keeps_are_joined_by_their_names(
    gateway_world: GatewayWorld, client: openai.AsyncOpenAI, way: str, is_streamed: bool
) -> None:
    fixed: Any = {"model": "gpt-x", "instructions": "You add.", "tools": TOOLS}
    question: Any = {"role": "user", "content": "12+34?"}
    first = await ask(client, is_streamed=is_streamed, input=[question], **fixed)
    named: Any = [{"type": "item_reference", "id": item.id} for item in first.output]
    if way == "items":
        given = {"input": [question, *named, *results_of(first)]}
    else:
        given = {"input": results_of(first), "previous_response_id": first.id}
    second = await ask(client, is_streamed=is_streamed, **given, **fixed)

    assert (first.store, second.store, second.output_text) == (True, True, "It is 46.")
    assert second.previous_response_id == given.get("previous_response_id")
    assert (
        second.usage.input_tokens
        > second.usage.input_tokens_details.cached_tokens
        == first.usage.total_tokens
    )
    assert gateway_world.sql(ROWS) == JOINED


@pytest.mark.parametrize("way", ["previous response", "items"])
async def test_of_two_answers_with_the_same_words_the_named_one_is_continued(
    gateway_world: GatewayWorld, client: openai.AsyncOpenAI, way: str
) -> None:
    """The words alone would join the newest."""
    question: Any = {"role": "user", "content": "12+34?"}
    answers = [await client.responses.create(model="x", input=[question], tools=TOOLS) for _ in range(3)]
    second, results = answers[1], results_of(answers[1])
    named: Any = [{"type": "item_reference", "id": item.id} for item in second.output]
    if way == "items":
        await client.responses.create(model="x", input=[question, *named, *results], tools=TOOLS)
    else:
        await client.responses.create(model="x", input=results, previous_response_id=second.id, tools=TOOLS)

    rows = gateway_world.sql(ROWS)
    assert [row[1] for row in rows] == [None, 0, 0, 0, 2, 4]
    assert rows[4][2] == "clean"


async def test_a_response_is_read_back_and_its_input_listed(client: openai.AsyncOpenAI) -> None:
    first = await client.responses.create(
        model="x", input="12+34?", instructions="You add.", tools=TOOLS, metadata={"run": "7"}
    )
    again = await client.responses.retrieve(first.id)
    listed = await client.responses.input_items.list(first.id)

    assert again.model_dump(exclude={"tools", "created_at"}) == first.model_dump(
        exclude={"tools", "created_at"}
    )
    assert [item.model_dump()["content"][0]["text"] for item in listed.data] == ["12+34?"]


async def test_the_instructions_of_a_previous_response_are_left_behind(
    gateway_world: GatewayWorld, client: openai.AsyncOpenAI
) -> None:
    said: Any = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "12+34?"}]
    first = await client.responses.create(model="x", input=said, instructions="You add.")
    await client.responses.create(model="x", input="Sure?", previous_response_id=first.id)
    asked = gateway_world.sql("SELECT messages FROM trajectory_node WHERE kind < 2 ORDER BY node_index")

    assert asked[0][0][0]["content"] == "You add.\n\nBe brief."
    assert [m["content"] for m in asked[1][0] if m["role"] != "assistant"] == ["Be brief.", "12+34?", "Sure?"]


@pytest.mark.parametrize("why", ["not stored", "of another session", "unknown", "no identifier"])
async def test_what_the_session_does_not_keep_is_not_found(
    gateway_world: GatewayWorld, client: openai.AsyncOpenAI, why: str
) -> None:
    asking = client
    if why == "of another session":
        (other,) = await gateway_world.lease(gateway_world.make_phase(Role.AGENT), max_sessions=2)
        asking = client.with_options(api_key=other["sessions"][0]["api_key"])
    first = await asking.responses.create(model="x", input="12+34?", store=why != "not stored")
    made_up = {"unknown": f"resp_{'0' * 32}", "no identifier": "12"}
    identifier = made_up.get(why, first.id)

    assert first.model_dump()["store"] is (why != "not stored")
    with pytest.raises(openai.NotFoundError) as previous:
        await client.responses.create(model="x", input="?", previous_response_id=identifier)
    named: Any = [{"type": "item_reference", "id": identifier.replace("resp_", "rs_") + "00"}]
    with pytest.raises(openai.NotFoundError) as item:
        await client.responses.create(model="x", input=[*named, {"role": "user", "content": "?"}])
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(identifier)
    assert (previous.value.param, previous.value.code) == (
        "previous_response_id",
        "previous_response_not_found",
    )
    assert (item.value.param, item.value.type) == ("input", "invalid_request_error")


async def test_a_text_is_answered_and_a_stored_conversation_refused(client: openai.AsyncOpenAI) -> None:
    cut = await client.responses.create(model="x", input="12+34?", max_output_tokens=3)

    assert (cut.status, cut.incomplete_details and cut.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="x", input="?", conversation="conv_1")
    with pytest.raises(openai.BadRequestError) as too_long:
        await client.responses.create(model="x", input="x" * 3000)
    assert (too_long.value.param, too_long.value.code) == ("input", "context_length_exceeded")
    assert (refused.value.param, refused.value.code) == ("conversation", "unsupported_parameter")
