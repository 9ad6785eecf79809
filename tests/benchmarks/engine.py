"""Compares the embedded engine over HTTP with `model.generate` of transformers: same model, same
batch, one thread each.

There are 1, 16 and 64 requests at once, with prompts of 32 tokens and 128 new ones, answered with
packed arrays and with plain JSON. The engine runs as a server and returns a logprob for each token;
`generate` samples in this process and returns none.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import aiohttp
import msgspec
import numpy as np
import torch
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from tests.benchmarks.measuring import Program, Side, interleaved, program_running
from tests.benchmarks.report import Row

BASELINE = "transformers model.generate"
CONCURRENCIES = (1, 16, 64)
MIN_REQUESTS = 8  # of a sample: one request at a time is asked for often enough to be timed
NUM_PROMPT_TOKENS = 32
NUM_NEW_TOKENS = 128
VOCABULARY = 512
MAX_MODEL_LEN = 512
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}

Generate = Callable[..., torch.Tensor]


@dataclass(frozen=True, slots=True)
class Bench:
    model_generate: Generate
    engine: Program
    http: aiohttp.ClientSession
    chance: np.random.Generator

    async def over_http(self, concurrency: int, *, is_packed: bool) -> dict[str, float]:
        num_rounds = _num_rounds(concurrency)
        prompts = self._prompts(concurrency * num_rounds)
        started_s = time.perf_counter()
        for start in range(0, len(prompts), concurrency):
            batch = prompts[start : start + concurrency]
            await asyncio.gather(*(self._request(prompt.tolist(), is_packed=is_packed) for prompt in batch))
        return _rate(len(prompts), time.perf_counter() - started_s)

    async def generate(self, concurrency: int) -> dict[str, float]:
        num_rounds = _num_rounds(concurrency)
        prompts = torch.from_numpy(self._prompts(concurrency * num_rounds))
        started_s = time.perf_counter()
        with torch.inference_mode():
            for batch in torch.split(prompts, concurrency):
                answer = self.model_generate(
                    batch, attention_mask=torch.ones_like(batch), do_sample=True, temperature=1.0, top_k=0,
                    max_new_tokens=NUM_NEW_TOKENS, pad_token_id=0,
                )  # fmt: skip
                assert answer.shape == (concurrency, NUM_PROMPT_TOKENS + NUM_NEW_TOKENS)
        return _rate(len(prompts), time.perf_counter() - started_s)

    async def _request(self, prompt: list[int], *, is_packed: bool) -> None:
        sampling = {"max_tokens": NUM_NEW_TOKENS, "temperature": 1.0, "ignore_eos": True, "logprobs": 0}
        body = msgspec.json.encode({"token_ids": prompt, "sampling_params": sampling, "packed": is_packed})
        async with self.http.post(f"{self.engine.base_url}/inference/v1/generate", data=body) as response:
            raw = await response.read()
        assert response.status == 200, raw
        assert msgspec.json.decode(raw)["usage"]["completion_tokens"] == NUM_NEW_TOKENS

    def _prompts(self, num_prompts: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Return new prompts, so that no prefix cache contains them."""
        return self.chance.integers(3, VOCABULARY, (num_prompts, NUM_PROMPT_TOKENS))


async def measure() -> list[Row]:
    torch.set_num_threads(1)
    rows: list[Row] = []
    with _engine_running() as (generate, engine):
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as http:
            bench = Bench(generate, engine, http, np.random.default_rng(0))
            for concurrency in CONCURRENCIES:
                rows += await _measure(bench, concurrency)
    return rows


async def _measure(bench: Bench, concurrency: int) -> list[Row]:
    sides: dict[str, Side] = {
        "packed arrays": partial(bench.over_http, concurrency, is_packed=True),
        "plain JSON": partial(bench.over_http, concurrency, is_packed=False),
        BASELINE: partial(bench.generate, concurrency),
    }
    samples = await interleaved(sides)
    baseline = samples.pop(BASELINE)["tokens_per_s"]
    return [
        Row(f"{concurrency} at once, {name}", "tokens/s", sample["tokens_per_s"], BASELINE, baseline)
        for name, sample in samples.items()
    ]


def _num_rounds(concurrency: int) -> int:
    return max(2, MIN_REQUESTS // concurrency)


def _rate(num_answers: int, elapsed_s: float) -> dict[str, float]:
    return {"tokens_per_s": num_answers * NUM_NEW_TOKENS / elapsed_s}


@contextmanager
def _engine_running() -> Iterator[tuple[Generate, Program]]:
    """Start an engine that serves a model of the example's shape with weights from a seed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=VOCABULARY, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, max_position_embeddings=MAX_MODEL_LEN, tie_word_embeddings=True,
            bos_token_id=None, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        model: PreTrainedModel = Qwen3ForCausalLM(config).eval()
        disable_progress_bar()
        model.save_pretrained(folder)
        flags = {
            "--model": folder,
            "--port": 0,
            "--slots": max(CONCURRENCIES),
            "--max-model-len": MAX_MODEL_LEN,
        }
        words = [str(word) for flag in flags.items() for word in flag]
        engine = program_running("seamlessflow_workers.rollout.engine", *words, environ=ONE_THREAD)
        yield cast(Generate, model.generate), stack.enter_context(engine)
