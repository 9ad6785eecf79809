"""What is reported is what was sampled from: every logprob against a plain transformers forward, to 1e-5."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MistralConfig, MistralForCausalLM, PreTrainedModel

from seamlessflow_workers.process.input_faults import InputFault
from seamlessflow_workers.rollout.engine.model.loading import LoadOptions, load_runner
from seamlessflow_workers.rollout.engine.model.torch_runner import TorchRunner
from tests.contract.engine.conftest import LONG, EngineUnderTest, Kind, StartEngine, Stream, tokens_of
from tests.fixtures.devices import device_name

OpenStream = Callable[..., Awaitable[Stream]]
# The reference runs on a processor; another device adds up in another order.
TOLERANCE = 1e-5 if device_name() == "cpu" else 1e-3
PROMPT = list(range(20, 60))


@torch.no_grad()
def reference_logprobs(
    model: PreTrainedModel, prompt: list[int], answer: list[int], *, temperature: float = 1.0
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1].double() / temperature
    chosen = logits.log_softmax(dim=-1).gather(1, torch.tensor(answer)[:, None])[:, 0]
    result: np.ndarray[tuple[int], np.dtype[np.float64]] = chosen.numpy()
    return result


@torch.no_grad()
def answer_logits(model: PreTrainedModel, prompt: list[int], ids: list[int]) -> torch.Tensor:
    """[tokens, vocabulary], float64."""
    logits: torch.Tensor = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    return logits.double()


async def test_penalties_and_biases_reshape_the_distribution_that_is_sampled(
    real_engine: EngineUnderTest,
) -> None:
    """As vLLM defines them: biases first, repetition over prompt and answer, the others over the answer."""
    params: dict[str, Any] = {
        "logit_bias": {"30": 2.0, "31": -3.0},
        "frequency_penalty": 0.7,
        "presence_penalty": -0.4,
        "repetition_penalty": 1.3,
    }
    prompt = [30, 30, 41]
    answer = await real_engine.generate(prompt, seed=5, max_tokens=25, ignore_eos=True, logprobs=0, **params)
    ids, logprobs = tokens_of(answer["choices"][0])

    table = answer_logits(real_engine.load_reference(None), prompt, ids)
    for place, (token, logprob) in enumerate(zip(ids, logprobs, strict=True)):
        row, said = table[place], torch.tensor(ids[:place], dtype=torch.long)
        row[30], row[31] = row[30] + 2.0, row[31] - 3.0
        seen = torch.tensor(sorted({*prompt, *ids[:place]}))
        row[seen] = torch.where(row[seen] > 0, row[seen] / 1.3, row[seen] * 1.3)
        counts = torch.bincount(said, minlength=len(row))
        row -= 0.7 * counts - 0.4 * (counts > 0)
        assert abs(float(row.log_softmax(0)[token]) - logprob) < TOLERANCE


async def test_logprobs_match_transformers_through_batching(real_engine: EngineUnderTest) -> None:
    """Twenty requests of mixed lengths and temperatures through eight slots, prompts in chunks, rows moved about."""
    prompts = [[20 + (7 * index + place) % 250 for place in range(3 + 9 * index)] for index in range(20)]
    temperatures = [1.0, 0.7, 1.5, 0.0]
    model = real_engine.load_reference(None)

    answers = await asyncio.gather(
        *(
            real_engine.generate(
                prompt,
                max_tokens=5 + 3 * index,
                temperature=temperatures[index % 4],
                logprobs=0,
                ignore_eos=True,
            )
            for index, prompt in enumerate(prompts)
        )
    )

    for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        ids, logprobs = tokens_of(answer["choices"][0])
        expected = reference_logprobs(model, prompt, ids, temperature=temperatures[index % 4] or 1.0)
        assert np.abs(expected - logprobs).max() < TOLERANCE


async def test_truncated_sampling_reports_the_truncated_distribution(real_engine: EngineUnderTest) -> None:
    model = real_engine.load_reference(None)

    answers = await asyncio.gather(
        *(
            real_engine.generate(
                PROMPT, max_tokens=60, top_k=5, top_p=0.8, seed=seed, logprobs=0, ignore_eos=True
            )
            for seed in range(4)
        )
    )

    for answer in answers:
        ids, logprobs = tokens_of(answer["choices"][0])
        with torch.no_grad():
            logits = model(torch.tensor([PROMPT + ids])).logits[0, len(PROMPT) - 1 : -1].double()
        for row, token, logprob in zip(logits, ids, logprobs, strict=True):
            probabilities, order = row.topk(5)[0].softmax(0), row.topk(5)[1].tolist()
            kept = int((probabilities.cumsum(0) - probabilities < 0.8).sum())
            assert token in order[:kept]
            expected = float((probabilities[order.index(token)] / probabilities[:kept].sum()).log())
            assert abs(expected - logprob) < 1e-4


async def test_samples_follow_the_distribution(start_engine: StartEngine) -> None:
    """5000 first tokens against the model's probabilities: Pearson's statistic within five standard deviations."""
    engine = await start_engine(Kind.QWEN3_TIED, num_slots=64, max_num_queued_requests=5000)
    with torch.no_grad():
        probabilities = (
            engine.load_reference(None)(torch.tensor([PROMPT])).logits[0, -1].double().softmax(0).numpy()
        )

    counts = np.zeros(len(probabilities))
    for _ in range(25):
        answers = await asyncio.gather(*(engine.generate(PROMPT, max_tokens=1) for _ in range(200)))
        for answer in answers:
            counts[answer["choices"][0]["token_ids"][0]] += 1

    expected = probabilities * 5000
    often = expected >= 5
    observed = np.append(counts[often], counts[~often].sum())
    wanted = np.append(expected[often], expected[~often].sum())
    statistic = ((observed - wanted) ** 2 / np.maximum(wanted, 1e-9)).sum()
    degrees = len(observed) - 1
    assert statistic < degrees + 5 * np.sqrt(2 * degrees)


async def test_logprobs_match_after_a_swap_and_after_swapping_back(real_engine: EngineUnderTest) -> None:
    params: dict[str, Any] = {"max_tokens": 40, "seed": 5, "logprobs": 0, "ignore_eos": True}
    original = await real_engine.generate(PROMPT, **params)

    for seed, version in ((2, "v2"), (1, "v3")):
        path = real_engine.make_weights(seed)
        await real_engine.update(path, version=version)
        ids, logprobs = tokens_of((await real_engine.generate(PROMPT, **params))["choices"][0])
        expected = reference_logprobs(real_engine.load_reference(path), PROMPT, ids)
        assert np.abs(expected - logprobs).max() < TOLERANCE

    assert ids == original["choices"][0]["token_ids"]


async def test_each_span_of_a_request_that_crossed_a_swap_matches_its_own_weights(
    real_engine: EngineUnderTest, open_stream: OpenStream
) -> None:
    stream = await open_stream(real_engine, PROMPT, max_tokens=LONG, ignore_eos=True, logprobs=0)
    path = real_engine.make_weights(2)
    await real_engine.post("/pause?mode=keep&clear_cache=true")
    under_first = int(await real_engine.metric("generation_tokens_total"))
    await real_engine.update(path, version="v2")
    await real_engine.post("/resume")
    while len(stream.token_ids) <= under_first + 30:
        assert await stream.read_chunk()
    await real_engine.post("/abort_requests", {})
    await stream.read_to_end()

    (first, second) = stream.final["weight_versions"]
    assert (first["version"], second["version"]) == ("v1", "v2")
    old = reference_logprobs(real_engine.load_reference(None), PROMPT, stream.token_ids)
    new = reference_logprobs(real_engine.load_reference(path), PROMPT, stream.token_ids)
    served = np.array(stream.logprobs)
    cut = first["end"]
    assert np.abs(old[:cut] - served[:cut]).max() < TOLERANCE
    assert np.abs(new[cut:] - served[cut:]).max() < TOLERANCE
    assert np.abs(old[cut:] - served[cut:]).max() > 0.1  # the swap shows


async def test_sharded_folder_loads_like_one_file(real_engine: EngineUnderTest, tmp_path: Path) -> None:
    path = real_engine.make_weights(2)
    names = sorted(load_file(path))
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: load_file(path)[name] for name in part}, tmp_path / f"model-{number}.safetensors")

    await real_engine.update(tmp_path, version="v2")

    ids, logprobs = tokens_of((await real_engine.generate(PROMPT, max_tokens=10, logprobs=0))["choices"][0])
    expected = reference_logprobs(real_engine.load_reference(path), PROMPT, ids)
    assert np.abs(expected - logprobs).max() < TOLERANCE


@pytest.mark.parametrize("flaw", ["missing", "unknown", "shape", "integer", "nan", "broken"])
async def test_flawed_weights_change_nothing(start_engine: StartEngine, tmp_path: Path, flaw: str) -> None:
    engine = await start_engine(Kind.LLAMA_UNTIED)
    tensors = load_file(engine.make_weights(2))
    name = "model.layers.1.mlp.down_proj.weight"
    if flaw == "missing":
        del tensors[name]
    elif flaw == "unknown":
        tensors["model.layers.7.extra"] = torch.zeros(1)
    elif flaw == "shape":
        tensors[name] = tensors[name][:-1].clone()
    elif flaw == "integer":
        tensors[name] = tensors[name].int()
    elif flaw == "nan":
        tensors[name][0, 0] = torch.nan
    path = tmp_path / "flawed.safetensors"
    save_file(tensors, path)
    if flaw == "broken":
        path.write_bytes(path.read_bytes()[:-100])
    await engine.post("/start_weight_update")

    await engine.post("/update_weights", {"update_info": {"path": str(path)}}, status=500)

    ids, logprobs = tokens_of((await engine.generate(PROMPT, max_tokens=10, logprobs=0))["choices"][0])
    expected = reference_logprobs(engine.load_reference(None), PROMPT, ids)
    assert np.abs(expected - logprobs).max() < TOLERANCE
    assert await engine.get("/weight_info") == {"weight_version": "v1"}


async def test_tied_head_that_differs_from_the_embedding_is_refused(
    start_engine: StartEngine, tmp_path: Path
) -> None:
    engine = await start_engine(Kind.QWEN3_TIED)
    tensors = load_file(engine.make_weights(2))
    tensors["lm_head.weight"] = tensors["lm_head.weight"] + 1
    save_file(tensors, tmp_path / "untied.safetensors")
    await engine.post("/start_weight_update")

    body = {"update_info": {"path": str(tmp_path / "untied.safetensors")}}
    error = (await engine.post("/update_weights", body, status=500))["error"]

    assert "lm_head.weight" in error["message"]


async def test_attention_window_shorter_than_the_length_is_refused(tmp_path: Path) -> None:
    config = MistralConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, sliding_window=100,
    )  # fmt: skip
    MistralForCausalLM(config).save_pretrained(tmp_path)

    def load(max_model_len: int) -> TorchRunner:
        return load_runner(
            LoadOptions(
                model=tmp_path,
                weights=None,
                dtype=torch.float32,
                device=torch.device("cpu"),
                max_model_len=max_model_len,
                num_slots=1,
            )
        )

    assert load(100).num_rows == 1
    with pytest.raises(InputFault, match="attention window of 100"):
        load(101)


async def test_tied_weights_load_with_either_name_alone(start_engine: StartEngine, tmp_path: Path) -> None:
    engine = await start_engine(Kind.QWEN3_TIED)
    path = engine.make_weights(2)
    model = engine.load_reference(path)
    for number, dropped in enumerate(("lm_head.weight", "model.embed_tokens.weight")):
        tensors = load_file(path)
        del tensors[dropped]
        file = tmp_path / f"without-{number}.safetensors"
        save_file(tensors, file)
        await engine.update(file, version=f"v{number}")
        ids, logprobs = tokens_of((await engine.generate(PROMPT, max_tokens=10, logprobs=0))["choices"][0])
        assert np.abs(reference_logprobs(model, PROMPT, ids) - logprobs).max() < TOLERANCE
