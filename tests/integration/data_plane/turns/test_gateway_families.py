"""Tool loops of other families than Qwen3 through a real gateway process, with their real tokenizers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.core.types.tags import Role
from seamlessflow.data_plane.store.values import unpacked
from seamlessflow.data_plane.turns.rendering.answer_text import AnswerText
from seamlessflow.data_plane.turns.rendering.model_text import model_text_load
from tests.fixtures.family_cases import CASES, SUM, TOOLS
from tests.fixtures.gateway_world import GatewayWorld
from tests.fixtures.real_tokenizers import REAL_MODELS, RealModel

models = pytest.mark.parametrize("model", REAL_MODELS, ids=lambda model: model.family.value)


def parallel_calls(model: RealModel) -> str:
    """Return an answer of the family that calls both tools."""
    return next(case.text for case in CASES if case.family is model.family and len(case.calls) == 2)


@models
async def test_parallel_calls_and_their_results_are_one_clean_branch(
    gateway_world: GatewayWorld, model: RealModel
) -> None:
    world = gateway_world
    world.write_model = model.write
    called = parallel_calls(model)
    (engine,) = await world.start_engines(
        lambda prompt: ("It is 3." if "3.0!" in prompt else called) + model.end
    )
    engine.headers = model.headers
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    client = openai.AsyncOpenAI(base_url=world.base_url + "/v1", api_key=group["sessions"][0]["api_key"])
    messages: Any = [{"role": "user", "content": "1 < 2?"}]
    tools: Any = TOOLS
    answer = await client.chat.completions.create(model="tiny", messages=messages, tools=tools)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    calls: Any = message.tool_calls
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("calc", SUM),
        ("now", {}),
    ]
    messages.append(message.model_dump(exclude_none=True))
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "3.0!"} for call in calls]
    after = await client.chat.completions.create(model="tiny", messages=messages, tools=tools)
    assert (after.choices[0].message.content, after.choices[0].finish_reason) == ("It is 3.", "stop")
    rows = world.sql("SELECT kind, parent_index, drift, token_ids FROM trajectory_node ORDER BY node_index")
    assert [row[:3] for row in rows] == [
        (0, None, "clean"), (2, 0, None), (1, 1, "clean"), (2, 2, None),
    ]  # fmt: skip
    sampled = np.frombuffer(unpacked(rows[1][3]), dtype="<i4").tolist()
    assert sampled == list(engine.text.ids(called + model.end))
    await client.close()


@models
async def test_streamed_calls_equal_whole_ones(gateway_world: GatewayWorld, model: RealModel) -> None:
    world = gateway_world
    world.write_model = model.write
    (engine,) = await world.start_engines(lambda prompt: parallel_calls(model) + model.end)
    engine.headers = model.headers
    (group,) = await world.lease(world.make_phase(Role.AGENT), max_sessions=2)
    client = openai.AsyncOpenAI(base_url=world.base_url + "/v1", api_key=group["sessions"][0]["api_key"])
    messages: Any = [{"role": "user", "content": "1 < 2?"}]
    tools: Any = TOOLS
    async with client.chat.completions.stream(model="tiny", messages=messages, tools=tools) as stream:
        async for _ in stream:
            pass
        streamed = (await stream.get_final_completion()).choices[0].message
    calls: Any = streamed.tool_calls
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("calc", SUM),
        ("now", {}),
    ]
    ((recorded,),) = world.sql("SELECT messages FROM trajectory_node WHERE kind = 2")
    assert [call["id"] for call in recorded[0]["tool_calls"]] == [call.id for call in calls]
    await client.close()


@models
def test_any_cut_of_the_tokens_gives_the_whole_parse(model: RealModel, tmp_path: Path) -> None:
    text = model_text_load(model.write(tmp_path))
    assert text.family.name is model.family
    cases = [case for case in CASES if case.family is model.family]

    @settings(max_examples=50)
    @given(st.sampled_from(cases), st.lists(st.integers(1, 7), min_size=1, max_size=30))
    def check(case: Any, cuts: list[int]) -> None:
        ids = text.encode(case.text + model.end)
        answer, at = AnswerText(text, stop=(), tools=TOOLS, starts_in_reasoning=False), 0
        for cut in [*cuts, len(ids)]:
            answer.push(ids[4 * at : 4 * (at + cut)])
            at += cut
        answer.finish()
        assert (answer.parsed.content, answer.parsed.reasoning) == (case.content, case.reasoning)
        assert [(c.name, json.loads(c.arguments)) for c in answer.parsed.tool_calls] == list(case.calls)

    check()
