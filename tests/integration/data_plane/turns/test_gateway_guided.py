"""Forced and strict answers through the whole loop: gateway, embedded engine, rows, batch and a step of the trainer."""

import functools
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import anthropic
import numpy as np
import openai
import pytest

from seamlessflow.core.batching.format import Batch, batch_decode
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.store.values import unpacked
from tests.fixtures.gateway_world import GatewayWorld
from tests.fixtures.guided_model import embedded_engine, write_guided_model
from tests.fixtures.guided_sessions import SCHEMA
from tests.fixtures.tiny_text import TEMPLATE
from tests.fixtures.trainer_harness import run_check

USER: Any = {"role": "user", "content": "12+34?"}
ADD: dict[str, Any] = {
    "name": "add",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["a"],
        "additionalProperties": False,
    },
}
TOOLS: Any = [{"type": "function", "function": ADD}]
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}

MAX_ASKED = 40
# Comments by which the family is found.
TAGGED = {
    "qwen3_coder": TEMPLATE + "{#- <function= <parameter= #}",
    "glm": TEMPLATE + "{#- <arg_key> <arg_value> #}",
}
Answer = TypeVar("Answer")


@pytest.fixture
async def guided_world(gateway_world: GatewayWorld) -> AsyncIterator[GatewayWorld]:
    """A gateway with one embedded engine."""
    world = gateway_world
    world.write_model = write_guided_model
    world.make_job()
    async with embedded_engine(world.folder / "model") as url:
        world.make_phase(Role.ROLLOUT, endpoint=url, version=0)
        await world.start_gateway()
        yield world


@pytest.fixture(params=TAGGED)
async def tagged_world(
    gateway_world: GatewayWorld, request: pytest.FixtureRequest
) -> AsyncIterator[GatewayWorld]:
    """A gateway with one embedded engine, whose model puts arguments between tags."""
    world = gateway_world
    world.write_model = functools.partial(write_guided_model, template=TAGGED[request.param])
    world.make_job()
    async with embedded_engine(world.folder / "model") as url:
        world.make_phase(Role.ROLLOUT, endpoint=url, version=0)
        await world.start_gateway()
        yield world


def assert_follows(content: str) -> None:
    value = json.loads(content)
    assert len(value["a"]) <= 5
    assert value["b"] in ("x", "é")


async def until_ended(ask: Callable[[], Awaitable[Answer]], is_cut: Callable[[Answer], bool]) -> Answer:
    """Ask until an answer ends by itself; a policy with random weights may think to its limit."""
    for _ in range(MAX_ASKED):
        answer = await ask()
        if not is_cut(answer):
            return answer
    raise AssertionError("no answer ended")


async def ended_choice(world: GatewayWorld, key: str, **fields: Any) -> Any:
    answer = await until_ended(
        lambda: world.chat(key, [USER], **fields),
        lambda answer: answer["choices"][0]["finish_reason"] == "length",
    )
    return answer["choices"][0]


async def leased_batch(world: GatewayWorld) -> bytes:
    trainer = world.make_phase(Role.TRAIN)
    request = {"applied_batch": 0, "durable_batch": 0, "policy_version": 0, "wait_s": 10.0}
    status, payload = await world.phase_post(trainer, "/trainer/v1/batches/lease", request)
    assert status == 200, payload
    return payload


def trained_in(batch: Batch) -> int:
    return int(batch.loss_mask.sum())


@pytest.mark.slow
async def test_guided_answers_train_with_the_logprobs_that_they_were_sampled_with(
    guided_world: GatewayWorld,
) -> None:
    world = guided_world
    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent, max_sessions=2)
    for reward, session in enumerate(group["sessions"]):
        key = session["api_key"]
        answer = await ended_choice(world, key, response_format=FORMAT)
        assert answer["finish_reason"] == "stop"
        assert_follows(answer["message"]["content"])
        called = await ended_choice(world, key, tools=TOOLS, tool_choice="required")
        assert called["finish_reason"] == "tool_calls"
        for call in called["message"]["tool_calls"]:
            assert 0 <= json.loads(call["function"]["arguments"])["a"] <= 9
        await world.chat(key, [USER], max_tokens=9)  # beside them, a free answer
        await world.finish(agent, session["session_id"], reward=float(reward))

    recorded = world.sql("SELECT flags->'guide', loss_mask, num_tokens FROM trajectory_node WHERE kind = 2")
    tokenizer = hashlib.sha256((world.folder / "model" / "tokenizer.json").read_bytes()).hexdigest()
    assert {guide["tokenizer"] for guide, _, _ in recorded if guide} == {tokenizer}
    assert {mask for _, mask, _ in recorded} == {None}
    num_free = sum(num_tokens for guide, _, num_tokens in recorded if guide is None)

    path = world.folder / "batch"
    path.write_bytes(await leased_batch(world))
    batch = batch_decode(path.read_bytes())
    metrics = run_check(
        ["tests.integration.data_plane.turns.guided_batch_check", str(world.folder / "model"), str(path)]
    )["step"]["metrics"]
    assert metrics["train/mismatch_max"] < 1e-3
    assert abs(metrics["train/kl_reference"]) < 1e-5
    assert metrics["train/num_unknown_mask_tokens"] == 0
    assert metrics["train/num_guided_tokens"] == trained_in(batch) - num_free > 20
    assert metrics["train/grad_norm"] > 0


async def test_every_dialect_forces_calls_and_schemas(guided_world: GatewayWorld) -> None:
    world = guided_world
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    key = group["sessions"][0]["api_key"]
    chat = openai.AsyncOpenAI(base_url=world.base_url + "/v1", api_key=key)
    claude = anthropic.AsyncAnthropic(base_url=world.base_url, api_key=key)

    named: Any = {"type": "function", "function": {"name": "add"}}

    async def streamed() -> Any:
        async with chat.chat.completions.stream(
            model="m", messages=[USER], tools=TOOLS, tool_choice=named
        ) as stream:
            async for _ in stream:
                pass
            return (await stream.get_final_completion()).choices[0]

    choice = await until_ended(streamed, lambda choice: choice.finish_reason == "length")
    (call,) = choice.message.tool_calls
    assert 0 <= json.loads(call.function.arguments)["a"] <= 9

    form: Any = {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}}
    response = await until_ended(
        lambda: chat.responses.create(model="m", input="?", text=form),
        lambda response: response.status == "incomplete",
    )
    assert_follows(response.output_text)

    tool: Any = {"name": "add", "input_schema": ADD["parameters"]}
    message = await until_ended(
        lambda: claude.messages.create(
            model="m", max_tokens=200, messages=[USER], tools=[tool], tool_choice={"type": "any"}
        ),
        lambda message: message.stop_reason == "max_tokens",
    )
    assert {block.type for block in message.content} == {"tool_use"}
    assert message.stop_reason == "tool_use"
    await chat.close()
    await claude.close()


@pytest.mark.parametrize(
    "fields,param",
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "strange"}}}},
            "response_format.json_schema.schema",
        ),
        (
            {
                "tools": [{"type": "function", "function": ADD | {"parameters": {"not": {}}}}],
                "tool_choice": "required",
            },
            "tool_choice",
        ),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_schema_that_cannot_be_followed_is_refused_by_field(
    guided_world: GatewayWorld, fields: dict[str, Any], param: str, is_streamed: bool
) -> None:
    (group,) = await guided_world.lease(guided_world.make_phase(Role.AGENT), max_sessions=2)
    body = {"messages": [USER], "stream": is_streamed, **fields}
    status, raw = await guided_world.post("/v1/chat/completions", body, group["sessions"][0]["api_key"])
    assert (status, json.loads(raw)["error"]["param"]) == (400, param)
    assert guided_world.sql("SELECT count(*) FROM trajectory_node") == [(0,)]


async def test_strict_tools_leave_the_policy_its_choice(guided_world: GatewayWorld) -> None:
    world = guided_world
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    tools = [{"type": "function", "function": ADD | {"strict": True}}]
    answer = await world.chat(group["sessions"][0]["api_key"], [USER], tools=tools, max_tokens=60, n=4)
    for choice in answer["choices"]:
        for call in choice["message"].get("tool_calls", []):
            assert 0 <= json.loads(call["function"]["arguments"])["a"] <= 9
    guides = world.sql("SELECT flags->'guide'->>'kind' FROM trajectory_node WHERE kind = 2")
    assert guides == [("grammar",)] * 4


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_arguments_between_tags_are_forced_with_their_types(
    tagged_world: GatewayWorld, is_streamed: bool
) -> None:
    world = tagged_world
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    client = openai.AsyncOpenAI(base_url=world.base_url + "/v1", api_key=group["sessions"][0]["api_key"])
    text = {"type": "string", "minLength": 1, "maxLength": 3}
    properties = {**ADD["parameters"]["properties"], "b": text, "c": {"type": "boolean"}}
    parameters = {**ADD["parameters"], "properties": properties, "required": ["a", "b", "c"]}
    tools: Any = [{"type": "function", "function": {"name": "add", "parameters": parameters}}]

    async def ask() -> Any:
        async with client.chat.completions.stream(
            model="m", messages=[USER], tools=tools, tool_choice="required", parallel_tool_calls=False
        ) as stream:
            return (await stream.get_final_completion()).choices[0]

    async def ask_plainly() -> Any:
        said = await client.chat.completions.create(
            model="m", messages=[USER], tools=tools, tool_choice="required", parallel_tool_calls=False
        )
        return said.choices[0]

    choice = await until_ended(
        ask if is_streamed else ask_plainly, lambda choice: choice.finish_reason == "length"
    )
    (call,) = choice.message.tool_calls
    arguments = json.loads(call.function.arguments)
    assert arguments.keys() == {"a", "b", "c"}
    assert arguments["a"] in range(10)
    assert 1 <= len(arguments["b"]) <= 3
    assert isinstance(arguments["c"], bool)
    await client.close()


async def test_strict_tools_that_tags_cannot_follow_are_ignored_by_name(tagged_world: GatewayWorld) -> None:
    world = tagged_world
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    client = openai.AsyncOpenAI(base_url=world.base_url + "/v1", api_key=group["sessions"][0]["api_key"])
    parameters = {"properties": {"day": {"type": "string", "format": "date"}}}
    function = {"name": "add", "strict": True, "parameters": parameters}
    asked: Any = {"model": "m", "messages": [USER], "tools": [{"type": "function", "function": function}]}
    answer = await client.chat.completions.with_raw_response.create(**asked, max_tokens=5)
    assert answer.headers["x-seamlessflow-ignored"] == "tools.strict"
    with pytest.raises(openai.BadRequestError, match="parameter day: format of a string"):
        await client.chat.completions.create(**asked, tool_choice="required")
    await client.close()


async def test_the_likeliest_tokens_are_really_listed(guided_world: GatewayWorld) -> None:
    world = guided_world
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    key = group["sessions"][0]["api_key"]
    fields: dict[str, Any] = {"logprobs": True, "top_logprobs": 20, "max_tokens": 5}
    (choice,) = (await world.chat(key, [USER], **fields))["choices"]
    for entry in choice["logprobs"]["content"]:
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(values) == 20
        assert values == sorted(values, reverse=True)
    (guided,) = (await world.chat(key, [USER], response_format=FORMAT, **fields))["choices"]
    first = guided["logprobs"]["content"][0]
    assert 0 < len(first["top_logprobs"]) < 20, "only what the schema allows"
    assert sum(np.exp(top["logprob"]) for top in first["top_logprobs"]) == pytest.approx(1, abs=1e-4)


async def test_a_response_lists_the_likeliest_tokens_of_its_text(guided_world: GatewayWorld) -> None:
    world = guided_world
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    form = {"type": "json_schema", "name": "f", "schema": FORMAT["json_schema"]["schema"]}
    body = {"input": "12+34?", "text": {"format": form}, "top_logprobs": 3, "max_output_tokens": 60}
    status, raw = await world.post("/v1/responses", body, group["sessions"][0]["api_key"])
    assert status == 200, raw
    (text,) = [item["content"][0] for item in json.loads(raw)["output"] if item["type"] == "message"]
    said = "".join(entry["token"] for entry in text["logprobs"])  # tokens may be parts of a character
    assert [char for char in said.strip() if char.isascii()] == [c for c in text["text"] if c.isascii()]
    for entry in text["logprobs"]:
        assert 1 <= len(entry["top_logprobs"]) <= 3
        assert max(top["logprob"] for top in entry["top_logprobs"]) >= entry["logprob"]


async def test_penalties_and_biases_are_sampled_and_never_trained(guided_world: GatewayWorld) -> None:
    world = guided_world
    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent, max_sessions=2)
    for reward, session in enumerate(group["sessions"]):
        key = session["api_key"]
        biased = await world.chat(key, [USER], max_tokens=6, logit_bias={"8": 100}, presence_penalty=0.5)
        await world.chat(key, [USER], max_tokens=9)
        await world.finish(agent, session["session_id"], reward=float(reward))
        ids = world.sql(
            "SELECT token_ids FROM trajectory_node WHERE turn_id = %s", [UUID(hex=biased["id"][9:])]
        )
        assert np.frombuffer(unpacked(ids[-1][0]), dtype="<i4").tolist() == [8] * 6
    flags = world.sql("SELECT flags->'untrained' FROM trajectory_node WHERE kind = 2 ORDER BY node_index")
    assert flags == [(["presence_penalty", "logit_bias"],)] * 2 + [(None,)] * 2
    ((num_free,),) = world.sql(
        "SELECT sum(num_tokens) FROM trajectory_node WHERE kind = 2 AND loss_mask IS NULL"
    )
    assert trained_in(batch_decode(await leased_batch(world))) == num_free


async def test_an_engine_that_does_not_say_whose_masks_it_used_trains_nothing(
    gateway_world: GatewayWorld,
) -> None:
    """The scripted engine samples as it likes."""
    world = gateway_world
    await world.start_engines(lambda prompt: '{"a":"","b":"x"}')
    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent, max_sessions=2)
    await world.chat(group["sessions"][0]["api_key"], [USER], response_format=FORMAT)
    ((flags, mask, num_tokens),) = world.sql(
        "SELECT flags, loss_mask, num_tokens FROM trajectory_node WHERE kind = 2"
    )
    assert flags == {"untrained": ["guide"]}
    assert mask == bytes(-(-num_tokens // 8))


async def test_strict_tools_are_ignored_by_name_where_not_every_engine_guides(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "46", rollout={"engine": "vllm"})
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    client = openai.AsyncOpenAI(base_url=world.base_url + "/v1", api_key=group["sessions"][0]["api_key"])
    tools: Any = [{"type": "function", "function": ADD | {"strict": True}}]
    answer = await client.chat.completions.with_raw_response.create(model="m", messages=[USER], tools=tools)
    assert answer.headers["x-seamlessflow-ignored"] == "tools.strict"
    assert answer.parse().choices[0].message.content == "46"
    assert world.sql("SELECT flags FROM trajectory_node WHERE kind = 2") == [({},)]
    await client.close()
