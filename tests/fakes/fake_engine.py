"""An engine without a model: the embedded engine's HTTP surface and scheduler, on top of arithmetic.

The next token is a pure function of (prefix, weight version), and so is its logprob: `next_token` and `next_logprob`
tell a test which values to expect. The fake's KV cache stores the tokens themselves, so a scheduler that mixes up rows,
positions or prefixes gives wrong tokens here too. Faults: a delay per step, death after k tokens (connections break
off, nothing listens any more), a hang.

    engine = await start_fake_engine(step_delay_s=0.001)
    ... engine.base_url ...
    await engine.stop()
"""

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seamlessflow_workers.rollout.engine.engine import EmbeddedEngine
from seamlessflow_workers.rollout.engine.runner import Sampled, StagedWeights, StepBatch
from seamlessflow_workers.rollout.serving.served_engine import EngineSettings
from seamlessflow_workers.rollout.serving.server import EngineServer
from seamlessflow_workers.weights.offers import WeightsError

NEVER = -1


def _digest(prefix: NDArray[np.int32], version: str) -> bytes:
    return hashlib.blake2b(
        np.ascontiguousarray(prefix, dtype="<i4").tobytes(), digest_size=8, key=version.encode()[:64]
    ).digest()


def next_token(prefix: list[int] | NDArray[np.int32], *, version: str, vocab_size: int = 300) -> int:
    """Return the token that the fake appends to `prefix` under `version`; never 0 … 9, so tests may
    use those to stop."""
    value = int.from_bytes(_digest(np.asarray(prefix, dtype=np.int32), version)[:4], "little")
    return 10 + value % (vocab_size - 10)


def next_logprob(prefix: list[int] | NDArray[np.int32], *, version: str) -> float:
    value = int.from_bytes(_digest(np.asarray(prefix, dtype=np.int32), version)[4:], "little")
    return -float(np.float32((value % 4096) / 1024))


@dataclass(slots=True)
class Faults:
    """The faults of the fake; tests change them while it runs."""

    step_delay_s: float = 0.0
    die_after_tokens: int = NEVER  # of all requests together
    is_hanging: bool = False  # no step ends while this is set


class _NoWeights:
    num_bytes = 0

    def apply(self) -> None:
        """The fake's weights consist of its version."""


class FakeRunner:
    eos_token_ids = frozenset({2})

    def __init__(self, *, num_rows: int, max_model_len: int, vocab_size: int, faults: Faults) -> None:
        self.num_rows = num_rows
        self.max_model_len = max_model_len
        self.vocab_size = vocab_size
        self.faults = faults
        self.num_sampled = 0
        self.died = threading.Event()
        self.on_death: Callable[[], object] = lambda: None
        self.is_released = False
        self._cache: NDArray[np.int32] = np.full((num_rows, max_model_len), -1, dtype=np.int32)

    def step(self, batch: StepBatch) -> Sampled:
        if self.is_released:
            raise RuntimeError("a step ran without a KV cache")
        self._wait()
        ends: list[tuple[int, int]] = []
        for chunk in batch.chunks:
            end = chunk.start + len(chunk.tokens)
            self._cache[chunk.row, chunk.start : end] = chunk.tokens
            if chunk.is_sampled:
                ends.append((chunk.row, end))
        self._cache[batch.decode_rows, batch.decode_positions] = batch.decode_tokens
        ends += [(int(r), int(p) + 1) for r, p in zip(batch.decode_rows, batch.decode_positions, strict=True)]
        prefixes = [self._cache[row, :end] for row, end in ends]
        self.num_sampled += len(ends)
        version = batch.weight_version
        tokens = [next_token(prefix, version=version, vocab_size=self.vocab_size) for prefix in prefixes]
        logprobs = np.array([next_logprob(prefix, version=version) for prefix in prefixes], dtype=np.float32)
        ids, num_top = np.array(tokens, dtype=np.int64), batch.sampling.num_top
        if not num_top:
            return Sampled(tokens=ids, logprobs=logprobs)
        top_ids = (ids[:, None] + np.arange(num_top)) % self.vocab_size
        return Sampled(
            ids, logprobs, top_ids, np.subtract.outer(logprobs, np.arange(num_top, dtype=np.float32))
        )

    def _wait(self) -> None:
        faults = self.faults
        if faults.step_delay_s:
            time.sleep(faults.step_delay_s)
        if NEVER < faults.die_after_tokens <= self.num_sampled:
            self.died.set()
            self.on_death()
        while (faults.is_hanging or self.died.is_set()) and not self.is_released:
            time.sleep(0.005)

    def copy_prefix(self, *, source: int, target: int, num_tokens: int) -> None:
        self._cache[target, :num_tokens] = self._cache[source, :num_tokens]

    def swap_rows(self, first: int, second: int, *, num_tokens: int) -> None:
        self._cache[[first, second], :num_tokens] = self._cache[[second, first], :num_tokens]

    def stage_weights(self, path: Path) -> StagedWeights:
        if not path.exists():
            raise WeightsError(f"{path} does not exist")
        return _NoWeights()

    def allocate_cache(self) -> None:
        self._cache = np.full((self.num_rows, self.max_model_len), -1, dtype=np.int32)
        self.is_released = False

    def release_cache(self) -> int:
        self.is_released = True
        return 0


class FakeEngine:
    def __init__(self, *, service: EmbeddedEngine, faults: Faults, runner: FakeRunner) -> None:
        self.service = service
        self.faults = faults
        self._runner = runner
        self.server = EngineServer(service)
        self._watch: asyncio.Task[None] | None = None
        self._death = asyncio.Event()
        self.base_url = ""
        self.is_dead = False

    @property
    def version(self) -> str:
        return self.service.weight_version

    @property
    def num_sampled(self) -> int:
        return self._runner.num_sampled

    async def start(self, *, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._runner.on_death = lambda: loop.call_soon_threadsafe(self._death.set)
        self.base_url = await self.server.start(port=port)
        self._watch = asyncio.create_task(self._die_when_told())

    async def set_version(self, version: str) -> None:
        """Swap the weights between two tokens, without the HTTP calls."""
        await self.service.reset_prefix_cache(reset_running=True)
        await self.service.set_weight_version(version)

    async def kill(self) -> None:
        """Break all connections and stop listening, as a killed process does."""
        if self.is_dead:
            return
        self.is_dead = True
        self._runner.died.set()
        await self.server.http.stop()
        self._release()
        await self.service.stop()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if not self.is_dead:
            self.is_dead = True
            self._release()
            await self.server.stop()

    def _release(self) -> None:
        """Let a hanging step end, so that the engine's thread can be joined."""
        self.faults.is_hanging = False
        self._runner.is_released = True

    async def _die_when_told(self) -> None:
        await self._death.wait()
        await self.kill()


async def start_fake_engine(
    *,
    version: str = "0",
    step_delay_s: float = 0.0,
    die_after_tokens: int = NEVER,
    num_slots: int = 64,
    max_model_len: int = 4096,
    vocab_size: int = 300,
    max_num_queued_requests: int = 1024,
    port: int = 0,
) -> FakeEngine:
    faults = Faults(step_delay_s=step_delay_s, die_after_tokens=die_after_tokens)
    runner = FakeRunner(num_rows=num_slots, max_model_len=max_model_len, vocab_size=vocab_size, faults=faults)
    settings = EngineSettings(
        model_name="fake", weight_version=version, max_num_queued_requests=max_num_queued_requests
    )
    engine = FakeEngine(service=EmbeddedEngine(runner, settings), faults=faults, runner=runner)
    await engine.start(port=port)
    return engine
