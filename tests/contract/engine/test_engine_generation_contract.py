"""Token-in/token-out generation: shapes, sampling parameters, streams, aborts, bounds, prefix reuse."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.contract.engine.conftest import (
    LONG,
    MAX_MODEL_LEN,
    PREFIX,
    VOCAB_SIZE,
    EngineUnderTest,
    Kind,
    StartEngine,
    Stream,
    assert_spans_cover,
    tokens_of,
)

OpenStream = Callable[..., Awaitable[Stream]]
PROMPT = list(range(20, 60))


async def test_answer_has_the_fields_that_rollout_clients_read(engine: EngineUnderTest) -> None:
    answer = await engine.generate(
        PROMPT,
        max_tokens=5,
        ignore_eos=True,
        logprobs=0,
        extra={"request_id": "r1", "return_token_ids": True},
    )

    assert answer["request_id"] == PREFIX + "r1"
    assert answer["prompt_token_ids"] == PROMPT
    assert answer["usage"] | {"prompt_tokens_details": None} == {
        "prompt_tokens": 40,
        "completion_tokens": 5,
        "total_tokens": 45,
        "prompt_tokens_details": None,
    }
    (choice,) = answer["choices"]
    assert (choice["index"], choice["finish_reason"], choice["stop_reason"]) == (0, "length", None)
    assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == 5
    assert choice["weight_versions"] == [{"version": "v1", "start": 0, "end": 5}]


async def test_logprobs_are_left_out_unless_asked_for(engine: EngineUnderTest) -> None:
    answer = await engine.generate(PROMPT, max_tokens=3)

    assert answer["choices"][0]["logprobs"] is None


async def test_likeliest_tokens_come_with_the_sampled_one_first(engine: EngineUnderTest) -> None:
    answer = await engine.generate(PROMPT, max_tokens=4, logprobs=3, ignore_eos=True)

    for entry in answer["choices"][0]["logprobs"]["content"]:
        top = entry["top_logprobs"]
        assert len(top) == 3
        assert (top[0]["token_id"], top[0]["logprob"]) == (entry["token_id"], entry["logprob"])
        assert len({other["token_id"] for other in top}) == 3


@pytest.mark.parametrize("is_packed", [False, True])
async def test_streaming_equals_unary(
    engine: EngineUnderTest, open_stream: OpenStream, is_packed: bool
) -> None:
    params: dict[str, Any] = {"max_tokens": 150, "seed": 7, "logprobs": 0, "ignore_eos": True}
    plain = await engine.generate(PROMPT, **params)

    stream = await open_stream(
        engine, PROMPT, extra={"packed": is_packed, "stream_options": {"include_usage": True}}, **params
    )
    await stream.read_to_end()

    ids, logprobs = tokens_of(plain["choices"][0])
    assert stream.token_ids == ids
    assert stream.logprobs == pytest.approx(logprobs, abs=1e-5)
    assert stream.final["finish_reason"] == "length"
    assert stream.final["weight_versions"] == plain["choices"][0]["weight_versions"]
    assert {version for version, _ in stream.chunk_versions} == {"v1"}
    assert stream.usage["completion_tokens"] == 150


async def test_packed_answer_holds_the_same_tokens_and_is_announced(engine: EngineUnderTest) -> None:
    params: dict[str, Any] = {"max_tokens": 20, "seed": 3, "logprobs": 0}
    plain = await engine.generate(PROMPT, **params)
    packed = await engine.generate(PROMPT, extra={"packed": True}, **params)
    description = await engine.get("/openapi.json")

    ids, logprobs = tokens_of(plain["choices"][0])
    packed_ids, packed_logprobs = tokens_of(packed["choices"][0])
    assert packed_ids == ids
    assert packed_logprobs == pytest.approx(logprobs, abs=1e-5)
    assert "token_ids" not in packed["choices"][0]
    assert "packed" in description["components"]["schemas"]["GenerateRequest"]["properties"]


async def test_same_seed_gives_the_same_tokens_whatever_else_runs(real_engine: EngineUnderTest) -> None:
    params: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
    alone = await real_engine.generate(PROMPT, seed=11, **params)
    answers = await asyncio.gather(
        *(real_engine.generate([*PROMPT, 30 + index], seed=index, **params) for index in range(12)),
        real_engine.generate(PROMPT, seed=11, **params),
    )

    assert answers[-1]["choices"][0]["token_ids"] == alone["choices"][0]["token_ids"]
    assert len({tuple(answer["choices"][0]["token_ids"]) for answer in answers}) == len(answers)


async def test_stop_token_ends_the_answer_and_is_kept(engine: EngineUnderTest) -> None:
    free = (await engine.generate(PROMPT, max_tokens=12, temperature=0, ignore_eos=True))["choices"][0][
        "token_ids"
    ]
    stop = free[6]
    first = free.index(stop)

    stopped = (
        await engine.generate(PROMPT, max_tokens=12, temperature=0, ignore_eos=True, stop_token_ids=[stop])
    )["choices"][0]

    assert stopped["token_ids"] == free[: first + 1]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", stop)


async def test_min_tokens_keeps_stop_tokens_from_being_sampled(real_engine: EngineUnderTest) -> None:
    params: dict[str, Any] = {"temperature": 0, "ignore_eos": True}
    first = (await real_engine.generate(PROMPT, max_tokens=1, **params))["choices"][0]["token_ids"][0]

    choice = (
        await real_engine.generate(PROMPT, max_tokens=9, min_tokens=5, stop_token_ids=[first], **params)
    )["choices"][0]

    assert first not in choice["token_ids"][:5]
    assert len(choice["token_ids"]) >= 5


async def test_answer_without_max_tokens_fills_the_models_length(engine: EngineUnderTest) -> None:
    prompt = [20 + index % 200 for index in range(MAX_MODEL_LEN - 10)]

    choice = (await engine.generate(prompt, ignore_eos=True))["choices"][0]

    assert (len(choice["token_ids"]), choice["finish_reason"]) == (10, "length")


@pytest.mark.parametrize(
    "body,field",
    [
        ({"sampling_params": {}}, "token_ids"),
        ({"token_ids": [], "sampling_params": {}}, "token_ids"),
        ({"token_ids": [VOCAB_SIZE], "sampling_params": {}}, "token_ids"),
        ({"token_ids": [-1], "sampling_params": {}}, "token_ids"),
        ({"token_ids": [20] * MAX_MODEL_LEN, "sampling_params": {}}, "token_ids"),
        ({"token_ids": [20], "sampling_params": {}, "cache_salt": ""}, "cache_salt"),
        ({"token_ids": [20], "sampling_params": {"temperature": -1}}, "sampling_params.temperature"),
        ({"token_ids": [20], "sampling_params": {"top_p": 0}}, "sampling_params.top_p"),
        ({"token_ids": [20], "sampling_params": {"top_p": "much"}}, "sampling_params.top_p"),
        ({"token_ids": [20], "sampling_params": {"max_tokens": 0}}, "sampling_params.max_tokens"),
        (
            {"token_ids": [20], "sampling_params": {"max_tokens": 1, "min_tokens": 2}},
            "sampling_params.min_tokens",
        ),
    ],
)
async def test_bad_request_names_the_field(
    start_engine: StartEngine, body: dict[str, Any], field: str
) -> None:
    engine = await start_engine(Kind.QWEN3_TIED)

    error = (await engine.post("/inference/v1/generate", body, status=400))["error"]

    assert error["code"] == 400
    assert field.rpartition(".")[2] in f"{error['param']} {error['message']}"


@pytest.mark.parametrize(
    "param,value",
    [
        ("n", 2),
        ("presence_penalty", 2.5),
        ("repetition_penalty", -1.1),
        ("structured_outputs", {"json": {}}),
        ("stop", ["x"]),
        ("temprature", 1.0),
    ],
)
async def test_embedded_engine_refuses_what_it_would_have_to_ignore(
    start_engine: StartEngine, param: str, value: Any
) -> None:
    engine = await start_engine(Kind.QWEN3_TIED)

    error = (await engine.generate([20], status=400, **{param: value}))["error"]

    assert error["param"] == f"sampling_params.{param}"


async def test_broken_json_is_refused_in_the_same_shape(engine: EngineUnderTest) -> None:
    async with engine.http.post(
        "/inference/v1/generate", data=b"{", headers={"Content-Type": "application/json"}
    ) as response:
        assert response.status == 400
        assert json.loads(await response.text())["error"]["code"] == 400


async def test_abort_by_id_returns_the_tokens_so_far(
    engine: EngineUnderTest, open_stream: OpenStream
) -> None:
    stream = await open_stream(engine, PROMPT, max_tokens=LONG, ignore_eos=True, logprobs=0)

    await engine.post(
        "/inference/v1/abort_requests", {"request_ids": [stream.request_id.removeprefix(PREFIX)]}
    )
    assert await stream.read_chunk()
    await engine.post("/inference/v1/abort_requests", {"request_ids": [stream.request_id]})
    await stream.read_to_end()

    assert stream.final["finish_reason"] == "abort"
    assert 0 < len(stream.token_ids) == len(stream.logprobs) < LONG
    assert stream.final["weight_versions"] == [{"version": "v1", "start": 0, "end": len(stream.token_ids)}]


async def test_abort_of_all_answers_everyone_with_200(engine: EngineUnderTest) -> None:
    tasks = [
        asyncio.create_task(engine.generate([20 + index], max_tokens=LONG, ignore_eos=True))
        for index in range(10)
    ]
    await engine.until_metric("num_requests_running", 8)
    await engine.until_metric("num_requests_waiting", 2)

    answer = await engine.post("/abort_requests", {})
    choices = [(await task)["choices"][0] for task in tasks]

    assert answer == {"status": "aborted", "aborted": 10}
    assert {choice["finish_reason"] for choice in choices} == {"abort"}
    assert sum(not choice["token_ids"] for choice in choices) == 2


async def test_vanished_client_stops_being_computed(engine: EngineUnderTest, open_stream: OpenStream) -> None:
    stream = await open_stream(engine, PROMPT, max_tokens=LONG, ignore_eos=True)
    unary = asyncio.create_task(engine.generate(PROMPT, max_tokens=LONG, ignore_eos=True))
    await engine.until_metric("num_requests_running", 2)

    stream.drop()
    unary.cancel()

    await engine.until_metric("num_requests_running", 0)
    assert await engine.metric("generation_tokens_total") < 2 * LONG


async def test_full_queue_answers_503_and_recovers(start_engine: StartEngine) -> None:
    engine = await start_engine(Kind.FAKE, num_slots=2, max_num_queued_requests=3)
    await _fill_and_recover(engine)


async def test_full_queue_of_the_embedded_engine_answers_503_and_recovers(start_engine: StartEngine) -> None:
    engine = await start_engine(Kind.QWEN3_TIED, num_slots=2, max_num_queued_requests=3)
    await _fill_and_recover(engine)


async def _fill_and_recover(engine: EngineUnderTest) -> None:
    tasks = [
        asyncio.create_task(engine.generate([20 + i], max_tokens=LONG, ignore_eos=True)) for i in range(3)
    ]
    await engine.until_metric("num_requests_running", 2)
    await engine.until_metric("num_requests_waiting", 1)

    error = (await engine.generate([30], status=503, max_tokens=1))["error"]
    assert (error["code"], error["type"]) == (503, "Service Unavailable")
    assert await engine.metric("admission_rejections_total") == 1

    await engine.post("/abort_requests", {})
    await asyncio.gather(*tasks)
    assert (await engine.generate([30], max_tokens=1))["choices"][0]["token_ids"]


async def test_second_turn_finds_its_prefix_and_another_salt_does_not(engine: EngineUnderTest) -> None:
    first = await engine.generate(PROMPT, max_tokens=60, ignore_eos=True, extra={"cache_salt": "a"})
    turn = PROMPT + first["choices"][0]["token_ids"] + [41, 42]
    hits = await engine.metric("prefix_cache_hits_total")

    await engine.generate(turn, max_tokens=5, extra={"cache_salt": "b"})
    assert await engine.metric("prefix_cache_hits_total") == hits

    await engine.generate(turn, max_tokens=5, extra={"cache_salt": "a"})
    # vLLM keeps whole blocks of 32 tokens, the last token's keys are not there yet: 96 of 102.
    assert await engine.metric("prefix_cache_hits_total") - hits >= 96


async def test_group_with_one_prompt_computes_it_once(start_engine: StartEngine) -> None:
    engine = await start_engine(Kind.QWEN3_TIED)
    prompt = [20 + index % 150 for index in range(200)]

    await asyncio.gather(*(engine.generate(prompt, max_tokens=30, seed=seed) for seed in range(8)))

    queries = await engine.metric("prefix_cache_queries_total")
    assert queries == 8 * 200
    assert await engine.metric("prefix_cache_hits_total") >= 7 * 192


async def test_reused_prefixes_do_not_change_the_answer(real_engine: EngineUnderTest) -> None:
    prompts = [PROMPT + [100 + index] * (index % 5) + [60 + index] for index in range(20)]
    params: dict[str, Any] = {"max_tokens": 25, "logprobs": 0, "ignore_eos": True}

    fresh = [
        await real_engine.generate(prompt, seed=index, extra={"cache_salt": f"only-{index}"}, **params)
        for index, prompt in enumerate(prompts)
    ]
    shared = await asyncio.gather(
        *(
            real_engine.generate(prompt, seed=index, extra={"cache_salt": "all"}, **params)
            for index, prompt in enumerate(prompts)
        )
    )

    for one, other in zip(fresh, shared, strict=True):
        ids, logprobs = tokens_of(one["choices"][0])
        other_ids, other_logprobs = tokens_of(other["choices"][0])
        assert other_ids == ids
        assert other_logprobs == pytest.approx(logprobs, abs=1e-5)
        assert_spans_cover(other["choices"][0])


async def test_metrics_count_what_was_done(engine: EngineUnderTest) -> None:
    await asyncio.gather(
        *(engine.generate(PROMPT[: 10 + i], max_tokens=6, ignore_eos=True) for i in range(4))
    )

    assert await engine.metric("generation_tokens_total") == 24
    assert await engine.metric("prompt_tokens_total") == 10 + 11 + 12 + 13
    assert await engine.metric("num_requests_running") == 0
    assert await engine.metric("num_requests_waiting") == 0
    assert await engine.metric("kv_cache_usage_perc") == 0


async def test_engine_describes_itself(engine: EngineUnderTest) -> None:
    (card,) = (await engine.get("/v1/models"))["data"]
    paths = (await engine.get("/openapi.json"))["paths"]

    assert card["max_model_len"] == MAX_MODEL_LEN
    assert {"/inference/v1/generate", "/pause", "/update_weights", "/finish_weight_update"} <= set(paths)
    assert "version" in await engine.get("/version")
    async with engine.http.get("/health") as response:
        assert response.status == 200


async def test_long_prompt_does_not_stop_the_others(
    start_engine: StartEngine, open_stream: OpenStream
) -> None:
    """Chunks of a long prompt and decode steps alternate: the short stream advances before the long answer starts."""
    engine = await start_engine(Kind.FAKE)
    stream = await open_stream(engine, PROMPT, max_tokens=LONG, ignore_eos=True)
    tokens_before = len(stream.token_ids)
    prompt = [20 + index % 200 for index in range(MAX_MODEL_LEN - 4)]

    await engine.generate(prompt, max_tokens=1)
    assert await stream.read_chunk()

    assert len(stream.token_ids) > tokens_before
    stream.drop()


async def test_unknown_path_is_404_in_the_same_shape(engine: EngineUnderTest) -> None:
    assert (await engine.post("/nothing", {}, status=404))["error"]["code"] == 404
