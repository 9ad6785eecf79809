"""Guided answers: they belong to their language, and their logprobs are those of the masked distribution."""

import asyncio
import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from seamlessflow.core.algorithms.options import AlgorithmName
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.batching.assembler import BatchPlan, assemble_batch
from seamlessflow.core.batching.finished import FinishedSession
from seamlessflow.core.batching.format import batch_encode
from seamlessflow.core.guidance.guide import guide_make
from seamlessflow.core.guidance.masks import GuidedBy, unpacked_mask
from seamlessflow.core.guidance.matching import LIBRARY, Vocabulary
from seamlessflow.core.guidance.record import guide_record
from seamlessflow.core.trajectory.prefix_tree import Node, NodeKind
from tests.contract.engine.conftest import (
    VOCAB_SIZE,
    EngineUnderTest,
    Kind,
    StartEngine,
    engine_params,
    tokens_of,
)
from tests.contract.engine.test_engine_logprob_contract import PROMPT, TOLERANCE, reference_logprobs
from tests.fixtures.trainer_harness import run_check

END = 2
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "é"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ENGINES = [Kind.QWEN3_TIED, Kind.LLAMA_UNTIED, Kind.GENERIC_TIED, Kind.VLLM_TIED]
NUMBERS = {"regex": "[0-9]{40}"}


@pytest.fixture(params=engine_params(*ENGINES))
async def guided_engine(request: pytest.FixtureRequest, start_engine: StartEngine) -> EngineUnderTest:
    return await start_engine(request.param, has_tokenizer=True)


def tokenizer_of(engine: EngineUnderTest) -> Tokenizer:
    return Tokenizer.from_file(str(engine.model_dir / "tokenizer.json"))


def text_of(engine: EngineUnderTest, ids: list[int]) -> str:
    text: str = tokenizer_of(engine).decode(
        [token for token in ids if token != END], skip_special_tokens=False
    )
    return text


@torch.no_grad()
def masked_logprobs(
    engine: EngineUnderTest,
    model: PreTrainedModel,
    answer: list[int],
    wanted: dict[str, Any],
    temperature: float,
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The logprobs of all tokens at each place of the answer, in float64, from masks that are computed anew."""
    tokenizer_json = (engine.model_dir / "tokenizer.json").read_text()
    matcher = Vocabulary(tokenizer_json, num_tokens=VOCAB_SIZE).matcher(
        guide_make(wanted, end_token_ids=[END])
    )
    masks = []
    for token in answer:
        masks.append(unpacked_mask(matcher.mask(), num_tokens=VOCAB_SIZE))
        matcher.consume(token)
    logits = model(torch.tensor([PROMPT + answer])).logits[0, len(PROMPT) - 1 : -1].double() / temperature
    logits = logits.masked_fill(~torch.from_numpy(np.array(masks)), -torch.inf)
    result: np.ndarray[tuple[int, int], np.dtype[np.float64]] = logits.log_softmax(dim=-1).numpy()
    return result


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
async def test_logprobs_are_those_of_the_masked_distribution(
    guided_engine: EngineUnderTest, temperature: float
) -> None:
    """Guided requests of several kinds beside free ones, more than there are slots."""
    wanted: list[dict[str, Any]] = [
        {"json": SCHEMA},
        {"regex": "(ab|[0-9]){1,6}!"},
        {"choice": ["yes", "yesterday", "no"]},
        {"grammar": 'start: <think> /[a-c]{1,5}/ </think> "done"'},
    ]
    model = guided_engine.load_reference(None)
    params: dict[str, Any] = {"max_tokens": 300, "logprobs": 0, "temperature": temperature}
    answers = await asyncio.gather(
        *(
            guided_engine.generate(PROMPT, seed=seed, structured_outputs=one, **params)
            for seed in range(3)
            for one in wanted
        ),
        *(guided_engine.generate(PROMPT, seed=seed, **params | {"max_tokens": 20}) for seed in range(4)),
    )

    for index, answer in enumerate(answers):
        choice = answer["choices"][0]
        ids, logprobs = tokens_of(choice)
        if index >= 3 * len(wanted):
            expected = reference_logprobs(model, PROMPT, ids, temperature=temperature or 1.0)
        else:
            assert choice["finish_reason"] == "stop"
            one = wanted[index % len(wanted)]
            table = masked_logprobs(guided_engine, model, ids, one, temperature or 1.0)
            expected = table[np.arange(len(ids)), ids]
        assert np.abs(expected - logprobs).max() < TOLERANCE


async def test_answers_belong_to_their_language(guided_engine: EngineUnderTest) -> None:
    answers = await asyncio.gather(
        *(
            guided_engine.generate(PROMPT, seed=seed, max_tokens=300, structured_outputs={"json": SCHEMA})
            for seed in range(12)
        )
    )
    values = [json.loads(text_of(guided_engine, tokens_of(answer["choices"][0])[0])) for answer in answers]
    assert all(0 <= value["a"] <= 99 and value["b"] in ("x", "é") for value in values)
    assert len({json.dumps(value) for value in values}) > 1


async def test_an_answer_continues_after_its_own_tokens(guided_engine: EngineUnderTest) -> None:
    """As after a hand-over: another engine gets the prompt with what is there, and how much of it is guided."""
    params: dict[str, Any] = {"temperature": 0.0, "max_tokens": 300, "logprobs": 0}
    params["structured_outputs"] = NUMBERS
    whole, logprobs = tokens_of((await guided_engine.generate(PROMPT, **params))["choices"][0])
    for cut in (1, 20, len(whole) - 1):
        rest = await guided_engine.generate(PROMPT + whole[:cut], extra={"guided_prefix": cut}, **params)
        ids, again = tokens_of(rest["choices"][0])
        assert ids == whole[cut:]
        assert np.abs(np.array(again) - logprobs[cut:]).max() < TOLERANCE


@pytest.mark.parametrize("level", [0, 1])
async def test_a_pause_and_a_lost_cache_change_nothing(
    guided_engine: EngineUnderTest, open_stream: Any, level: int
) -> None:
    params: dict[str, Any] = {"seed": 5, "max_tokens": 1000, "structured_outputs": {"regex": "[a-f]{250}"}}
    plain, _ = tokens_of((await guided_engine.generate(PROMPT, **params))["choices"][0])
    stream = await open_stream(guided_engine, PROMPT, **params)
    await guided_engine.post(f"/sleep?level={level}&mode=keep")
    num_sampled = await guided_engine.metric("generation_tokens_total")
    await guided_engine.post("/wake_up")
    await stream.read_to_end()
    assert num_sampled < 2 * len(plain), "the pause came in the middle of the answer"
    assert stream.token_ids == plain
    assert re.fullmatch("[a-f]{250}", text_of(guided_engine, plain))


async def test_packed_answers_carry_the_likeliest_tokens(guided_engine: EngineUnderTest) -> None:
    params: dict[str, Any] = {
        "seed": 1,
        "max_tokens": 50,
        "logprobs": 20,
        "structured_outputs": {"regex": "[ab]{3}"},
    }
    plain = (await guided_engine.generate(PROMPT, **params))["choices"][0]
    packed = (await guided_engine.generate(PROMPT, extra={"packed": True}, **params))["choices"][0]

    ids, _ = tokens_of(packed)
    top_ids = np.frombuffer(base64.b64decode(packed["top_token_ids_b64"]), dtype="<i4").reshape(len(ids), 20)
    top = np.frombuffer(base64.b64decode(packed["top_logprobs_b64"]), dtype="<f4").reshape(len(ids), 20)
    assert ids == plain["token_ids"]
    assert all((np.diff(row[np.isfinite(row)]) <= 0).all() for row in top)
    table = masked_logprobs(guided_engine, guided_engine.load_reference(None), ids, {"regex": "[ab]{3}"}, 1.0)
    for place, (row, values) in enumerate(zip(top_ids, top, strict=True)):
        is_real = row >= 0
        assert is_real.sum() == np.isfinite(table[place]).sum() < 20
        assert np.abs(table[place][row[is_real]] - values[is_real]).max() < TOLERANCE
        assert (values[~is_real] == -np.inf).all()
    for entry in plain["logprobs"]["content"]:
        assert all(np.isfinite(other["logprob"]) for other in entry["top_logprobs"])


@pytest.mark.parametrize(
    "field, body, params",
    [
        ("structured_outputs", {}, {"structured_outputs": {}}),
        ("structured_outputs", {}, {"structured_outputs": {"regex": "("}}),
        ("structured_outputs", {}, {"structured_outputs": {"json": {}, "regex": "a"}}),
        ("structured_outputs", {}, {"structured_outputs": {"structural_tag": "{}"}}),
        ("ignore_eos", {}, {"structured_outputs": NUMBERS, "ignore_eos": True}),
        ("min_tokens", {}, {"structured_outputs": NUMBERS, "min_tokens": 3}),
        ("guided_prefix", {"guided_prefix": 2}, {}),
        ("guided_prefix", {"guided_prefix": -1}, {"structured_outputs": NUMBERS}),
        ("guided_prefix", {"guided_prefix": len(PROMPT)}, {"structured_outputs": NUMBERS}),
        ("guided_prefix", {"guided_prefix": 3}, {"structured_outputs": NUMBERS}),
    ],
)
async def test_what_cannot_be_guided_is_refused_by_name(
    start_engine: StartEngine, field: str, body: dict[str, Any], params: dict[str, Any]
) -> None:
    engine = await start_engine(Kind.QWEN3_TIED, has_tokenizer=True)
    answer = await engine.generate(PROMPT, status=400, extra=body, **params)
    assert field in answer["error"]["param"]
    assert field in answer["error"]["message"]


@pytest.mark.parametrize("kind", [Kind.FAKE, Kind.PACED, Kind.QWEN3_TIED])
async def test_a_guide_is_refused_without_a_tokenizer(start_engine: StartEngine, kind: Kind) -> None:
    engine = await start_engine(kind)
    answer = await engine.generate(PROMPT, status=400, structured_outputs=NUMBERS)
    assert answer["error"]["param"] == "sampling_params.structured_outputs"


UNSAYABLE = {
    "grammar": 'start: ("<think>"){60}'
}  # text that is also a special token: offered, and then refused


async def test_a_guide_that_fails_ends_its_own_answer_alone(
    guided_engine: EngineUnderTest, open_stream: Any
) -> None:
    stream = await open_stream(guided_engine, PROMPT, max_tokens=900, structured_outputs=UNSAYABLE)
    beside = guided_engine.generate(PROMPT, seed=3, max_tokens=40, temperature=0.0)
    failed = await guided_engine.generate(PROMPT, status=400, max_tokens=900, structured_outputs=UNSAYABLE)
    await stream.read_to_end()

    assert failed["error"]["param"] == "sampling_params.structured_outputs"
    assert stream.error["code"] == 400
    assert stream.error["param"] == "sampling_params.structured_outputs"
    alone = await guided_engine.generate(PROMPT, seed=3, max_tokens=40, temperature=0.0)
    assert tokens_of((await beside)["choices"][0])[0] == tokens_of(alone["choices"][0])[0]


async def test_an_answer_says_who_computed_its_masks(
    guided_engine: EngineUnderTest, open_stream: Any
) -> None:
    tokenizer = (guided_engine.model_dir / "tokenizer.json").read_bytes()
    expected = {
        "library": LIBRARY,
        "tokenizer": hashlib.sha256(tokenizer).hexdigest(),
        "end_token_ids": [END, 7],
    }
    params: dict[str, Any] = {"max_tokens": 50, "structured_outputs": NUMBERS, "stop_token_ids": [7]}
    plain = await guided_engine.generate(PROMPT, **params)
    stream = await open_stream(guided_engine, PROMPT, **params)
    await stream.read_to_end()
    free = await guided_engine.generate(PROMPT, max_tokens=5)

    assert plain["choices"][0]["guided_by"] == expected
    assert stream.guided_by == expected
    assert "guided_by" not in free["choices"][0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", engine_params(Kind.QWEN3_TIED, Kind.VLLM_TIED))
async def test_the_trainer_finds_the_logprobs_of_a_guided_answer_again(
    start_engine: StartEngine, tmp_path: Path, kind: Kind
) -> None:
    """Two sessions, as the gateway records them, in one step of the trainer."""
    engine = await start_engine(kind, has_tokenizer=True)
    sessions = []
    guides: list[dict[str, Any]] = [{"json": SCHEMA}, {"regex": "(ab|[0-9]){1,6}!"}]
    for seed, wanted in enumerate(guides):
        params: dict[str, Any] = {
            "max_tokens": 300,
            "logprobs": 0,
            "seed": seed,
            "structured_outputs": wanted,
        }
        choice = (await engine.generate(PROMPT, **params))["choices"][0]
        sessions.append(FinishedSession(reward=float(seed), nodes=recorded_nodes(choice, wanted)))
    plan = BatchPlan(
        job_id="job",
        number=1,
        policy_version=0,
        temperature=1.0,
        algorithm=AlgorithmSection(name=AlgorithmName.GRPO),
    )
    batch = tmp_path / "batch"
    batch.write_bytes(batch_encode(assemble_batch([sessions], plan)))

    script = "tests.integration.data_plane.turns.guided_batch_check"
    metrics = run_check([script, str(engine.model_dir), str(batch)])["step"]["metrics"]
    assert metrics["train/mismatch_max"] < TOLERANCE
    assert metrics["train/num_guided_tokens"] == metrics["train/num_trained_tokens"] > 10
    assert metrics["train/num_unknown_mask_tokens"] == 0


def recorded_nodes(choice: dict[str, Any], wanted: dict[str, Any]) -> list[Node]:
    ids, logprobs = tokens_of(choice)
    guide = guide_make(wanted, end_token_ids=[END])
    record = guide_record(guide.kind, guide.text, msgspec.convert(choice["guided_by"], GuidedBy))
    root = Node(0, None, NodeKind.ROOT, np.array(PROMPT, dtype="<i4").tobytes(), (), len(PROMPT))
    answer = Node(
        index=1,
        parent=0,
        kind=NodeKind.SAMPLED,
        token_ids=np.array(ids, dtype="<i4").tobytes(),
        digests=(),
        num_path_tokens=len(PROMPT) + len(ids),
        logprobs=np.array(logprobs, dtype="<f4").tobytes(),
        spans=(0, 0),
        guided=record,
    )
    return [root, answer]
