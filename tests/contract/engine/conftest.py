"""Engines under one contract: each parameter of `engine` is a running server; tests speak plain HTTP to it.

To add an engine, add a kind to `Kind` and a branch to `_start`. `FAKE` has no weights, so tests of logprobs against
transformers take `real_engine`. A vLLM engine takes half a minute to start: one process of each vLLM kind serves all
tests of a session, brought back to its first weights before each, its counters read from there.
"""

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from seamlessflow_workers.rollout.engine.engine import EmbeddedEngine
from seamlessflow_workers.rollout.engine.model.loading import Backend, LoadOptions, load_runner
from seamlessflow_workers.rollout.engine.runner import ModelRunner
from seamlessflow_workers.rollout.serving.served_engine import EngineSettings
from seamlessflow_workers.rollout.serving.server import EngineServer
from seamlessflow_workers.weights.model_folder import folder_shapes
from seamlessflow_workers.weights.naming import parameter_views
from tests.fakes.fake_engine import start_fake_engine
from tests.fakes.pace import Pace
from tests.fakes.paced_engine import PacedRunner
from tests.fixtures.tiny_text import write_tiny_text
from tests.fixtures.vllm_servers import VllmServers

VOCAB_SIZE = 300
MAX_MODEL_LEN = 4096
LONG = 3000  # tokens no engine samples before a test's next call
POLL_S = 0.005
DEADLINE_S = 30.0
VLLM_TIMEOUT_S = 420
PREFIX = "generate-tokens-"


class Kind(StrEnum):
    FAKE = "fake"
    PACED = "paced"
    QWEN3_TIED = "embedded-qwen3-tied"
    QWEN2_UNTIED = "embedded-qwen2-untied"
    LLAMA_UNTIED = "embedded-llama-untied"
    GENERIC_TIED = "embedded-generic-qwen3-tied"
    LATENT_MIXTURE = "embedded-generic-deepseek-v3-untied"
    VLLM_TIED = "vllm-qwen3-tied"  # spread over two devices, where there are several
    VLLM_UNTIED = "vllm-llama-untied"


WITHOUT_MODEL = (Kind.FAKE, Kind.PACED)
VLLM_KINDS = (Kind.VLLM_TIED, Kind.VLLM_UNTIED)


def num_workers(kind: Kind, device: torch.device) -> int:
    """Return over how many devices the engine is spread."""
    is_spread = kind is Kind.VLLM_TIED and (device.type == "cpu" or torch.cuda.device_count() > 1)
    return 2 if is_spread else 1


def engine_params(*kinds: Kind) -> list[Any]:
    """The first test that asks for vLLM waits for its start."""
    return [
        pytest.param(kind, marks=[pytest.mark.timeout(VLLM_TIMEOUT_S)] if kind in VLLM_KINDS else [])
        for kind in kinds
    ]


@dataclass
class EngineUnderTest:
    kind: Kind
    base_url: str
    model_dir: Path
    http: aiohttp.ClientSession
    make_weights: Callable[[int], Path]
    load_reference: Callable[[Path | None], PreTrainedModel] = field(repr=False)
    counted: dict[str, float] = field(default_factory=dict)  # what counters showed before the test

    async def get(self, path: str) -> Any:
        async with self.http.get(path) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def post(self, path: str, body: Any = None, *, status: int = 200) -> Any:
        async with self.http.post(path, json=body) as response:
            text = await response.text()
            assert response.status == status, text
            return json.loads(text) if text else None

    async def generate(
        self, token_ids: list[int], *, status: int = 200, extra: dict[str, Any] | None = None, **params: Any
    ) -> Any:
        body = {"token_ids": token_ids, "sampling_params": params, **(extra or {})}
        return await self.post("/inference/v1/generate", body, status=status)

    async def metric(self, name: str) -> float:
        """The value of a gauge, or what a counter counted in this test."""
        values = await self.metrics()
        assert name in values, f"no metric {name}"
        return values[name] - self.counted.get(name, 0.0)

    async def metrics(self) -> dict[str, float]:
        """By name without `vllm:`, summed over labels."""
        async with self.http.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        values: dict[str, float] = {}
        for line in lines:
            if line.startswith("vllm:"):
                name = line.removeprefix("vllm:").partition("{")[0]
                values[name] = values.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
        return values

    async def until_metric(self, name: str, expected: float) -> None:
        await eventually(lambda: self._has(name, expected))

    async def _has(self, name: str, expected: float) -> bool:
        return await self.metric(name) == expected

    async def begin_anew(self) -> None:
        """As it was started, for an engine that outlives a test."""
        await self.post("/abort_requests", {})
        await self.update(self.model_dir, version="v1")
        await self.post("/reset_prefix_cache?reset_running_requests=true")
        await self.post("/wake_up")
        await self.until_metric("num_requests_running", 0)
        self.counted = {k: v for k, v in (await self.metrics()).items() if k.endswith("_total")}

    async def update(self, path: Path, *, version: str) -> None:
        await self.post("/init_weight_transfer_engine", {"init_info": {}})
        await self.post("/start_weight_update")
        await self.post("/update_weights", {"update_info": {"path": str(path)}})
        await self.post("/finish_weight_update", {"weight_version": version})


class Stream:
    """A streamed request whose chunks are read as they come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.chunk_versions: list[tuple[str | None, int]] = []
        self.request_id = ""
        self.final: dict[str, Any] = {}
        self.usage: dict[str, Any] = {}
        self.guided_by: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None  # what the engine said instead of an end

    async def read_chunk(self) -> bool:
        """False after the end marker."""
        while line := (await self._response.content.readline()).decode():
            if line.strip() == "data: [DONE]":
                return False
            if line.startswith("data: "):
                self._take(json.loads(line.removeprefix("data: ")))
                return True
        raise AssertionError("the stream ended without its marker")

    def _take(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            self.error = chunk["error"]
            return
        self.request_id = chunk["request_id"]
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            ids, logprobs = tokens_of(choice)
            self.token_ids += ids
            self.logprobs += logprobs
            self.chunk_versions.append((choice.get("weight_version"), len(ids)))
            self.guided_by = self.guided_by or choice.get("guided_by")
            if choice["finish_reason"] is not None:
                self.final = choice

    async def read_to_end(self) -> None:
        while await self.read_chunk():
            pass

    def drop(self) -> None:
        self._response.close()


def tokens_of(choice: dict[str, Any]) -> tuple[list[int], list[float]]:
    if "token_ids_b64" in choice:
        ids = np.frombuffer(base64.b64decode(choice["token_ids_b64"]), dtype="<i4").tolist()
        packed = choice["logprobs_b64"]
        return ids, [] if packed is None else np.frombuffer(base64.b64decode(packed), dtype="<f4").tolist()
    content = (choice.get("logprobs") or {"content": []})["content"]
    assert not content or [entry["token_id"] for entry in content] == choice["token_ids"]
    return choice["token_ids"], [entry["logprob"] for entry in content]


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():  # noqa: ASYNC110 - the condition lives in the engine, behind HTTP
            await asyncio.sleep(POLL_S)


def assert_spans_cover(choice: dict[str, Any]) -> None:
    spans = choice["weight_versions"]
    ids, _ = tokens_of(choice)
    assert [span["start"] for span in spans] == [0, *(span["end"] for span in spans[:-1])]
    assert spans[-1]["end"] == len(ids)
    assert all(span["start"] < span["end"] for span in spans)


@pytest.fixture
async def open_stream() -> AsyncIterator[Callable[..., Awaitable[Stream]]]:
    """Start a streamed request; its first chunk has been read, so it runs."""
    async with AsyncExitStack() as stack:

        async def start(
            engine: EngineUnderTest,
            token_ids: list[int],
            *,
            extra: dict[str, Any] | None = None,
            **params: Any,
        ) -> Stream:
            body = {"token_ids": token_ids, "sampling_params": params, "stream": True, **(extra or {})}
            response = await stack.enter_async_context(engine.http.post("/inference/v1/generate", json=body))
            assert response.status == 200, await response.text()
            stream = Stream(response)
            assert await stream.read_chunk()
            return stream

        yield start


def _build_model(kind: Kind, *, seed: int) -> PreTrainedModel:
    """Initialised wide, so that its distribution is far from uniform and a wrong logprob shows."""
    common: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": MAX_MODEL_LEN,
        "initializer_range": 0.15,
        "eos_token_id": 2,
        "bos_token_id": None,
        "pad_token_id": 0,
        "tie_word_embeddings": kind in (Kind.QWEN3_TIED, Kind.GENERIC_TIED, Kind.VLLM_TIED, *WITHOUT_MODEL),
    }
    if kind in VLLM_KINDS:
        # vLLM's attention wants heads of 32 at least; narrower numbers keep the logits as wide as the others'.
        common |= {"hidden_size": 128, "head_dim": 32, "initializer_range": 0.1}
    experts: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
    torch.manual_seed(seed)
    if kind in (Kind.LLAMA_UNTIED, Kind.VLLM_UNTIED):
        model: PreTrainedModel = LlamaForCausalLM(LlamaConfig(**common))
    elif kind is Kind.LATENT_MIXTURE:
        latent: dict[str, Any] = {
            "q_lora_rank": 24,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
        }
        groups: dict[str, Any] = {
            "n_routed_experts": 8,
            "n_group": 4,
            "topk_group": 2,
            "first_k_dense_replace": 1,
        }
        common["num_key_value_heads"] = 4
        model = DeepseekV3ForCausalLM(DeepseekV3Config(**common, **experts, **latent, **groups))
    elif kind is Kind.QWEN2_UNTIED:
        model = Qwen2ForCausalLM(Qwen2Config(**common))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**{"head_dim": 16, **common}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", ".bias")):
                parameter.add_(torch.randn_like(parameter) * 0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0, 0.1)
    model.eval()
    return model


class _Models:
    """One folder per kind with a model in it, and further weights for that model by seed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, kind: Kind) -> Path:
        path = self._root / kind
        if not path.exists():
            _build_model(kind, seed=1).save_pretrained(path)
        return path

    def folder_with_tokenizer(self, kind: Kind) -> Path:
        path = self._root / f"{kind}-with-tokenizer"
        if not path.exists():
            shutil.copytree(self.folder(kind), path)
            write_tiny_text(path)
        return path

    def weights(self, kind: Kind, seed: int) -> Path:
        """As a trainer writes them: every tensor, the head included even where it is tied."""
        path = self._root / f"{kind}-{seed}.safetensors"
        if not path.exists():
            state = _build_model(kind, seed=seed).state_dict()
            shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
            views = parameter_views(shapes, folder_shapes(self.folder(kind)))
            tensors = {name: view.of(state[view.parameter]) for name, view in views.items()}
            save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, path)
        return path

    def reference(self, kind: Kind, path: Path | None) -> PreTrainedModel:
        return _build_model(kind, seed=1 if path is None else int(path.stem.rsplit("-", 1)[1]))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> _Models:
    return _Models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="package")
def vllm_servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmServers]:
    servers = VllmServers(request.getfixturevalue("vllm_interpreter"), tmp_path_factory.mktemp("vllm"))
    yield servers
    servers.stop()


StartEngine = Callable[..., Awaitable[EngineUnderTest]]


@pytest.fixture
async def start_engine(
    models: _Models, device: torch.device, request: pytest.FixtureRequest
) -> AsyncIterator[StartEngine]:
    async with AsyncExitStack() as stack:

        async def start(
            kind: Kind,
            *,
            num_slots: int = 8,
            max_num_queued_requests: int = 64,
            has_tokenizer: bool = False,
        ) -> EngineUnderTest:
            has_tokenizer = has_tokenizer or kind in VLLM_KINDS  # whose servers all tests share
            folder = models.folder_with_tokenizer(kind) if has_tokenizer else models.folder(kind)
            if kind in VLLM_KINDS:
                servers: VllmServers = request.getfixturevalue("vllm_servers")  # skips where there is no vLLM
                # Together: each takes half a minute.
                servers.start(
                    {models.folder_with_tokenizer(other): num_workers(other, device) for other in VLLM_KINDS}
                )
                base_url = servers.base_url(folder)
            else:
                base_url = await _start(
                    stack,
                    kind,
                    folder,
                    device,
                    num_slots=num_slots,
                    max_num_queued_requests=max_num_queued_requests,
                )
            http = await stack.enter_async_context(
                aiohttp.ClientSession(base_url, connector=aiohttp.TCPConnector(limit=0))
            )
            engine = EngineUnderTest(
                kind=kind,
                base_url=base_url,
                model_dir=folder,
                http=http,
                make_weights=lambda seed: models.weights(kind, seed),
                load_reference=lambda path: models.reference(kind, path),
            )
            if kind in VLLM_KINDS:
                await engine.begin_anew()
            return engine

        yield start


async def _start(stack: AsyncExitStack, kind: Kind, folder: Path, device: torch.device, **bounds: int) -> str:
    if kind is Kind.FAKE:
        fake = await start_fake_engine(
            version="v1", step_delay_s=0.0005, max_model_len=MAX_MODEL_LEN, vocab_size=VOCAB_SIZE, **bounds
        )
        stack.push_async_callback(fake.stop)
        return fake.base_url
    if kind is Kind.PACED:
        pace = Pace(step_s=0.0005, load_s=0.001, wake_s=0.001)
        return await _serve(
            stack,
            PacedRunner(
                num_rows=bounds["num_slots"], max_model_len=MAX_MODEL_LEN, vocab_size=VOCAB_SIZE, pace=pace
            ),
            bounds,
        )
    runner = load_runner(
        LoadOptions(
            model=folder,
            weights=None,
            dtype=torch.float32,
            device=device,
            max_model_len=MAX_MODEL_LEN,
            num_slots=bounds["num_slots"],
            backend=Backend.GENERIC if kind in (Kind.GENERIC_TIED, Kind.LATENT_MIXTURE) else Backend.DENSE,
        )
    )
    return await _serve(stack, runner, bounds, folder)


async def _serve(
    stack: AsyncExitStack, runner: ModelRunner, bounds: dict[str, int], folder: Path | None = None
) -> str:
    settings = EngineSettings(
        model_name="tiny",
        weight_version="v1",
        max_batched_tokens=64,  # small, so that ordinary prompts are computed in chunks
        max_num_queued_requests=bounds["max_num_queued_requests"],
        model_folder=folder,
    )
    server = EngineServer(EmbeddedEngine(runner, settings))
    stack.push_async_callback(server.stop)
    return await server.start()


@pytest.fixture(
    params=engine_params(*(kind for kind in Kind if kind not in (Kind.LATENT_MIXTURE, Kind.VLLM_UNTIED)))
)
async def engine(request: pytest.FixtureRequest, start_engine: StartEngine) -> EngineUnderTest:
    return await start_engine(request.param)


@pytest.fixture(params=engine_params(*(kind for kind in Kind if kind not in WITHOUT_MODEL)))
async def real_engine(request: pytest.FixtureRequest, start_engine: StartEngine) -> EngineUnderTest:
    return await start_engine(request.param)
