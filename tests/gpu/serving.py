"""An embedded engine in this process, behind its real HTTP server, so that its memory can be
inspected from outside."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import torch

from seamlessflow_workers.rollout.engine.engine import EmbeddedEngine
from seamlessflow_workers.rollout.engine.model.loading import LoadOptions, load_runner
from seamlessflow_workers.rollout.engine.model.torch_runner import TorchRunner
from seamlessflow_workers.rollout.serving.served_engine import EngineSettings
from seamlessflow_workers.rollout.serving.server import EngineServer
from tests.gpu.models import MAX_MODEL_LEN

NUM_SLOTS = 64


@dataclass(frozen=True, slots=True)
class Answer:
    prompt: list[int]
    token_ids: list[int]
    logprobs: list[float]
    versions: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Served:
    runner: TorchRunner
    http: aiohttp.ClientSession

    async def post(self, path: str, body: Any = None) -> Any:
        async with self.http.post(path, json=body) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def generate(self, prompt: list[int], *, num_tokens: int) -> Answer:
        params = {"max_tokens": num_tokens, "ignore_eos": True, "logprobs": 0}
        body = {"token_ids": prompt, "sampling_params": params}
        choice = (await self.post("/inference/v1/generate", body))["choices"][0]
        logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        return Answer(prompt, choice["token_ids"], logprobs, choice["weight_versions"])

    async def generate_all(self, prompts: list[list[int]], *, num_tokens: int) -> tuple[list[Answer], float]:
        """Generate all at once; also return how many seconds that took."""
        started_s = time.monotonic()
        answers = await asyncio.gather(*(self.generate(prompt, num_tokens=num_tokens) for prompt in prompts))
        return list(answers), time.monotonic() - started_s

    async def update(self, path: Path, *, version: str) -> None:
        await self.post("/init_weight_transfer_engine", {"init_info": {}})
        await self.post("/start_weight_update")
        await self.post("/update_weights", {"update_info": {"path": str(path)}})
        await self.post("/finish_weight_update", {"weight_version": version})


def runner_of(model: Path, *, dtype: torch.dtype, device: torch.device) -> TorchRunner:
    return load_runner(
        LoadOptions(
            model=model,
            weights=None,
            dtype=dtype,
            device=device,
            max_model_len=MAX_MODEL_LEN,
            num_slots=NUM_SLOTS,
        )
    )


@asynccontextmanager
async def served(runner: TorchRunner) -> AsyncIterator[Served]:
    settings = EngineSettings(
        model_name="device", weight_version="0", max_batched_tokens=1024, device=runner._decoder.device.type
    )
    server = EngineServer(EmbeddedEngine(runner, settings))
    try:
        base_url = await server.start()
        async with aiohttp.ClientSession(base_url, connector=aiohttp.TCPConnector(limit=0)) as http:
            yield Served(runner, http)
    finally:
        await server.stop()
