"""Turns through a real gateway process: rows, answers, refusals."""

import json
from typing import Any

import numpy as np
import openai
import pytest

from seamlessflow.core.batching.format import batch_decode
from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.store.values import unpacked
from tests.fakes.scripted_engine import logprob_of
from tests.fixtures.gateway_world import GatewayWorld

TOOLS: Any = [{"type": "function", "function": {"name": "calc", "parameters": {}}}]


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


async def test_a_chat_becomes_rows_a_ready_group_and_a_batch(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    (engine,) = await world.start_engines(lambda prompt: "46<|im_end|>")
    agent = world.make_phase(Role.AGENT)
    groups = await world.lease(agent, max_sessions=2)
    assert [len(group["sessions"]) for group in groups] == [2]
    for reward, session in enumerate(groups[0]["sessions"]):
        first = await world.chat(session["api_key"], [user("12+34?")])
        assert first["choices"][0]["message"] == {"role": "assistant", "content": "46"}
        assert first["choices"][0]["finish_reason"] == "stop"
        second = await world.chat(
            session["api_key"], [user("12+34?"), first["choices"][0]["message"], user("Sure?")]
        )
        cached = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in (first, second)]
        assert cached == [0, first["usage"]["total_tokens"]]
        assert second["usage"]["prompt_tokens"] > cached[1]
        await world.finish(agent, session["session_id"], reward=float(reward))
    rows = world.sql("SELECT kind, drift, num_tokens FROM trajectory_node ORDER BY session_id, node_index")
    assert [row[0] for row in rows] == [0, 2, 1, 2] * 2
    assert {row[1] for row in rows if row[0] != 2} == {"clean"}
    assert world.sql("SELECT count(*) FROM trajectory_prompt") == [(1,)]
    assert world.sql("SELECT state, num_rewarded, reward_mean, min_version FROM trajectory_group") == [
        ("ready", 2, 0.5, 0)
    ]
    assert (
        world.sql("SELECT num_turns, num_sampled_tokens FROM trajectory_session") == [(2, rows[1][2] * 2)] * 2
    )
    assert ("group.state", "open", "ready") in world.sql(
        "SELECT kind, from_state, to_state FROM common_event"
    )
    trainer = world.make_phase(Role.TRAIN)
    request = {"applied_batch": 0, "durable_batch": 0, "policy_version": 0, "wait_s": 5.0}
    status, payload = await world.phase_post(trainer, "/trainer/v1/batches/lease", request)
    assert status == 200
    batch = batch_decode(payload)
    assert (batch.num_samples, batch.header.num_groups) == (2, 1)
    trained = batch.token_ids[batch.loss_mask != 0]
    assert engine.text.decode(trained.tolist()) == "46" * 4
    expected = np.array([logprob_of(int(token)) for token in trained], dtype=np.float32)
    np.testing.assert_array_equal(batch.behaviour_logprobs[batch.loss_mask != 0], expected)
    advantages = batch.advantages_positive + batch.advantages_negative
    assert sorted(set(advantages[batch.loss_mask != 0].tolist())) == [-0.5, 0.5]
    assert (await world.phase_post(trainer, "/trainer/v1/batches/lease", request))[1] == payload
    world.end_phase(trainer)
    assert (await world.phase_post(trainer, "/trainer/v1/batches/lease", request))[0] == 409


async def test_tool_calls_are_parsed_and_their_results_continue_the_same_branch(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    arguments = '{"name": "calc", "arguments": {"b": 34, "a": 12}}'
    call = f"<think>hm</think>Let me see.\n<tool_call>{arguments}</tool_call><|im_end|>"
    await world.start_engines(lambda prompt: "It is 46.<|im_end|>" if "tool\n46" in prompt else call)
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    key = group["sessions"][0]["api_key"]
    client = openai.AsyncOpenAI(base_url=world.base_url + "/v1", api_key=key)
    messages: Any = [user("12+34?")]
    answer = await client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    assert message.content == "Let me see."
    calls: Any = message.tool_calls
    assert json.loads(calls[0].function.arguments) == {"a": 12, "b": 34}
    messages += [
        {
            "role": "assistant",
            "content": message.content,
            "tool_calls": [call.model_dump() for call in calls],
        },
        {"role": "tool", "tool_call_id": "changed", "content": "46"},
    ]
    stream = await client.chat.completions.create(
        model="tiny",
        messages=messages,
        tools=TOOLS,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "It is 46."
    assert chunks[-1].usage is not None
    rows = world.sql(
        "SELECT kind, parent_index, drift, finish_reason FROM trajectory_node ORDER BY node_index"
    )
    assert rows == [
        (0, None, "clean", None),
        (2, 0, None, "tool_calls"),
        (1, 1, "clean", None),
        (2, 2, None, "stop"),
    ]
    await client.close()


async def test_n_answers_are_siblings_under_one_prompt(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    answer = await world.chat(group["sessions"][0]["api_key"], [user("?")], n=2, logprobs=True)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert len(answer["choices"][0]["logprobs"]["content"]) * 2 == answer["usage"]["completion_tokens"]
    assert world.sql("SELECT kind, parent_index FROM trajectory_node ORDER BY node_index") == [
        (0, None), (2, 0), (2, 0),
    ]  # fmt: skip


async def test_a_stop_string_ends_the_answer_and_its_token_stays_in_the_node(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    (engine,) = await world.start_engines(lambda prompt: "one two STOP three four<|im_end|>")
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    engine.step_s = 0.005
    answer = await world.chat(group["sessions"][0]["api_key"], [user("?")], stop="STOP", temperature=0.2)
    assert answer["choices"][0]["message"]["content"] == "one two "
    ((ids, flags, reason),) = world.sql(
        "SELECT token_ids, flags, finish_reason FROM trajectory_node WHERE kind = 2"
    )
    kept = engine.text.decode(np.frombuffer(unpacked(ids), dtype="<i4").tolist())
    assert kept.startswith("one two STOP"[:-1])
    assert "STOP" in kept
    assert "three" not in kept
    assert (flags, reason) == ({"overridden": {"temperature": 0.2}}, "stop")


@pytest.mark.parametrize(
    "fields,param",
    [
        ({"seed": "three"}, "seed"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": -0.5}, "min_p"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logit_bias": {"5": 101.0}}, "logit_bias"),
        ({"tool_choice": "sometimes", "tools": TOOLS}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0]"),
        ({"messages": "hello"}, "messages"),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    from seamlessflow.data_plane.dialects.chat.request import chat_request_parse
    from seamlessflow.data_plane.errors import ApiError

    with pytest.raises(ApiError) as refused:
        chat_request_parse(json.dumps({"messages": [user("?")]} | fields).encode(), temperature=1.0)
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_seed_is_recorded_and_an_unknown_field_is_named_as_ignored(
    gateway_world: GatewayWorld, is_streamed: bool
) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    assert world.http is not None
    body = {"messages": [user("?")], "seed": 7, "user": "somebody", "stream": is_streamed}
    async with world.http.post(
        f"{world.base_url}/v1/chat/completions",
        json=body,
        headers={"Authorization": f"Bearer {group['sessions'][0]['api_key']}"},
    ) as response:
        await response.read()

    assert (response.status, response.headers["X-SeamlessFlow-Ignored"]) == (200, "user")
    assert world.sql("SELECT flags FROM trajectory_node WHERE kind = 2") == [({"seed": 7},)]


async def test_bad_keys_and_long_prompts_are_refused_as_openai_does(gateway_world: GatewayWorld) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "yes<|im_end|>")
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    key = group["sessions"][0]["api_key"]
    assert (await world.post("/v1/chat/completions", {"messages": [user("?")]}, key + "x"))[0] == 401
    status, raw = await world.post("/v1/chat/completions", {"messages": [user("x" * 3000)]}, key)
    assert (status, json.loads(raw)["error"]["code"]) == (400, "context_length_exceeded")
    assert world.sql("SELECT count(*) FROM trajectory_node") == [(0,)]


async def test_a_sampled_nul_is_recorded_and_answered_as_any_other_character(
    gateway_world: GatewayWorld,
) -> None:
    world = gateway_world
    await world.start_engines(lambda prompt: "4\x006<|im_end|>")
    agent = world.make_phase(Role.AGENT)
    (group,) = await world.lease(agent, max_sessions=2)
    key = group["sessions"][0]["api_key"]

    first = await world.chat(key, [user("4?6")])
    again = await world.chat(key, [user("4?6"), first["choices"][0]["message"], user("Sure\x00?")])

    assert first["choices"][0]["message"]["content"] == "4\x006"
    assert again["usage"]["prompt_tokens"] > first["usage"]["total_tokens"]
    (stored,) = world.sql("SELECT messages::text FROM trajectory_node WHERE kind = 2 AND node_index = 1")
    assert json.loads(stored[0])[0]["content"] == "4\x006"
