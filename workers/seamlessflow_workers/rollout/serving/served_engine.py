"""What the HTTP routes ask of an engine, whichever it is: requests in, sequences that grow out, and control verbs.

Two engines are served: the embedded one (`service`) and vLLM (`rollout/vllm`). Routes, checks of bodies and shapes of
answers are the same code for both, so that a client cannot tell them apart. Here lies what is alike behind them:
admission, the requests in flight, and the event that says that the engine is dead.
"""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence as Series
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.rollout.serving.request import GenerateRequest, parse_generate_body
from seamlessflow_workers.rollout.serving.sequence import Sequence
from seamlessflow_workers.weights.offers import Arrival
from seamlessflow_workers.weights.receiving import weights_receive


class QueueFullError(Exception):
    """More unfinished requests than the engine was started to hold; try later or elsewhere."""


class EngineFailedError(RuntimeError):
    """The engine is dead and says why."""


class PauseMode(StrEnum):
    ABORT = "abort"
    WAIT = "wait"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    model_name: str
    weight_version: str = "default"
    max_batched_tokens: int = 512
    max_num_queued_requests: int = 1024
    seed: int = 0
    device: str = "cpu"  # cpu or cuda: decides which transports of weights there are


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What a request must keep to."""

    vocab_size: int
    max_model_len: int
    eos_token_ids: frozenset[int]


class ServedEngine(ABC):
    """One engine behind one HTTP server. Coroutines and `submit` are called in the server's event loop only.

    Each kind of engine keeps `weight_version`, `is_asleep` and `failure` up to date.
    """

    kind: str  # in /version

    def __init__(self, settings: EngineSettings, limits: ModelLimits) -> None:
        self.settings = settings
        self.limits = limits
        self.in_flight: dict[str, list[Sequence]] = {}
        self.rejections: Counter[str] = Counter()
        self.weight_version = settings.weight_version
        self.is_asleep = False
        self.failure: BaseException | None = None  # why the engine is dead
        self.failed = asyncio.Event()
        self._arrival: Arrival | None = None  # of weights that are staged
        self._staged_path: Path | None = None

    def parse(self, raw: bytes) -> GenerateRequest:
        return parse_generate_body(
            raw, vocab_size=self.limits.vocab_size, max_model_len=self.limits.max_model_len
        )

    def submit(self, body: GenerateRequest) -> Sequence:
        """Raise `QueueFullError` rather than queue without bound, `EngineFailedError` when the engine is dead."""
        if self.failure is not None:
            raise EngineFailedError(f"the engine failed: {self.failure}")
        if self.num_unfinished >= self.settings.max_num_queued_requests:
            self.rejections["max_num_queued_reqs"] += 1
            raise QueueFullError
        sequence = Sequence(
            request_id=body.request_id or uuid.uuid4().hex,
            body=body,
            eos_token_ids=self.limits.eos_token_ids,
            max_model_len=self.limits.max_model_len,
        )
        self.in_flight.setdefault(sequence.request_id, []).append(sequence)
        self._begin(sequence)
        return sequence

    def forget(self, sequence: Sequence) -> None:
        """The request's handler is done with it; what still runs has lost its client and is aborted."""
        siblings = self.in_flight[sequence.request_id]
        siblings.remove(sequence)
        if not siblings:
            del self.in_flight[sequence.request_id]
        if sequence.finish_reason is None:
            self.abort([sequence])

    @property
    @abstractmethod
    def num_unfinished(self) -> int:
        """Return the number of requests admitted and not yet finished."""

    @property
    @abstractmethod
    def is_paused(self) -> bool: ...

    @abstractmethod
    def start(self) -> None:
        """Called once, in the event loop, before the first request."""

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    def _begin(self, sequence: Sequence) -> None:
        """Compute it from now on; `sequence.changed` is set whenever there is something new."""

    @abstractmethod
    def abort(self, sequences: Series[Sequence]) -> None:
        """End requests with finish reason `abort` and the tokens that they have; leave finished ones alone."""

    @abstractmethod
    async def pause(self, mode: PauseMode, *, clear_cache: bool) -> None:
        """Done when nothing is computed any more: at once, or with `wait` after what runs has ended."""

    @abstractmethod
    async def resume(self) -> None: ...

    async def stage_weights(self, path: Path, transport: WeightTransport) -> Arrival:
        """Receive, read and prove what `load_weights` of this path will put in place; the old weights go on serving.

        Raises `WeightsError` when they do not fit.
        """
        self._forget_staged()
        if transport is WeightTransport.CUDA_IPC:
            arrival = await self._stage_from_card(path)
            if arrival.fallback:
                await self._stage(path)
        else:
            arrival = await asyncio.to_thread(weights_receive, path, transport, device=self.settings.device)
            try:
                await self._stage(arrival.folder)
            except BaseException:
                arrival.close()
                raise
        self._arrival, self._staged_path = arrival, path
        return arrival

    async def load_weights(self, path: Path) -> None:
        """Swap the weights in place; nothing is sampled until `set_weight_version` names them.

        Raises `WeightsError` when they do not fit: then nothing was changed.
        """
        if self._staged_path != path:
            await self.stage_weights(path, WeightTransport.FILE)
        try:
            await self._apply_staged()
        finally:
            self._forget_staged()

    def _forget_staged(self) -> None:
        if self._arrival is not None:
            self._arrival.close()
        self._arrival = self._staged_path = None

    @abstractmethod
    async def _stage(self, path: Path) -> None:
        """Read and prove; nothing is changed. Raises `WeightsError`."""

    @abstractmethod
    async def _stage_from_card(self, path: Path) -> Arrival:
        """As `_stage`, from memory that the trainer shares with whatever computes here; or why that cannot be."""

    @abstractmethod
    async def _apply_staged(self) -> None:
        """Put in place what was staged last, and sample nothing until it is named."""

    @abstractmethod
    async def set_weight_version(self, version: str | None) -> None:
        """Name what was loaded, or keep the name (None)."""

    @abstractmethod
    async def reset_prefix_cache(self, *, reset_running: bool) -> bool:
        """False when running sequences still hold what was to be forgotten."""

    @abstractmethod
    async def sleep(self, mode: PauseMode, *, level: int) -> None:
        """Level 0 pauses; level 1 also gives memory back, as far as the engine can."""

    @abstractmethod
    async def wake_up(self) -> None: ...

    @abstractmethod
    def metrics(self) -> str:
        """Prometheus text, under vLLM's names."""
