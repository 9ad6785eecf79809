"""OpenAI's client, unmodified, asks for completions of a real gateway process."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from seamlessflow.core.types.tags import Role
from tests.fixtures.gateway_world import GatewayWorld

ROWS = "SELECT kind, parent_index, drift FROM trajectory_node ORDER BY node_index"


@pytest.fixture
async def client(gateway_world: GatewayWorld) -> AsyncIterator[openai.AsyncOpenAI]:
    await gateway_world.start_engines(lambda prompt: " 46<|im_end|>")
    (group,) = await gateway_world.lease(gateway_world.make_phase(Role.AGENT), max_sessions=2)
    key = group["sessions"][0]["api_key"]
    async with openai.AsyncOpenAI(
        base_url=gateway_world.base_url + "/v1", api_key=key, max_retries=0
    ) as client:
        yield client


async def test_texts_and_token_ids_are_continued_without_a_template(
    gateway_world: GatewayWorld, client: openai.AsyncOpenAI
) -> None:
    text = gateway_world.engines[0].text
    first = await client.completions.create(model="x", prompt="12 + 34 =", logprobs=1)
    second = await client.completions.create(model="x", prompt=list(text.ids("12 + 34 =")), n=2)
    stream = await client.completions.create(
        model="x", prompt="4 + 6 =", stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    assert [choice.text for choice in (*first.choices, *second.choices)] == [" 46"] * 3
    logprobs: Any = first.choices[0].logprobs
    assert first.usage is not None
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == first.usage.completion_tokens
    assert first.usage.prompt_tokens == len(text.ids("12 + 34 ="))
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details.cached_tokens == 0  # token ids are no repeat of a text
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == " 46"
    assert chunks[-1].usage is not None
    assert gateway_world.sql(ROWS) == [
        (0, None, "clean"), (2, 0, None), (0, None, "fork"), (2, 2, None), (2, 2, None),
        (0, None, "fork"), (2, 5, None),
    ]  # fmt: skip


async def test_an_agent_that_continues_its_own_tokens_gets_one_branch(
    gateway_world: GatewayWorld, client: openai.AsyncOpenAI
) -> None:
    text = gateway_world.engines[0].text
    tokens = list(text.ids("12 + 34 ="))
    await client.completions.create(model="x", prompt=tokens, max_tokens=1)
    tokens.append(text.ids(" 46")[0])
    await client.completions.create(model="x", prompt=tokens, max_tokens=1)  # the answer was cut short
    tokens.append(text.ids(" 46")[0])
    await client.completions.create(model="x", prompt=[*tokens, *text.ids("and")])
    await client.completions.create(model="x", prompt=[*tokens, *text.ids("or")])

    assert gateway_world.sql(ROWS) == [
        (0, None, "clean"), (2, 0, None), (1, 1, "clean"), (2, 2, None), (1, 3, "clean"), (2, 4, None),
        (1, 3, "fork"), (2, 6, None),
    ]  # fmt: skip
    assert gateway_world.sql("SELECT num_tokens FROM trajectory_node WHERE node_index = 2") == [(0,)]


async def test_prompts_that_cannot_be_served_are_refused(client: openai.AsyncOpenAI) -> None:
    for prompt in ([100_000], "x" * 3000):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.completions.create(model="x", prompt=prompt)
        assert refused.value.param == "prompt"
