"""The interface of an engine to the HTTP routes: it takes requests and control verbs, and returns sequences that grow.

There are two kinds: the embedded engine (`rollout/engine`) and vLLM (`rollout/vllm`). Routes, checks of bodies and
shapes of answers are the same code for both, so that a client cannot distinguish them. This base class has what they
have in common: admission, the requests in flight, staged weights, and the event that is set when the engine dies.
"""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.rollout.serving.guides import GuideReader
from seamlessflow_workers.rollout.serving.request import GenerateRequest, parse_generate_body
from seamlessflow_workers.rollout.serving.sequence import ServedSequence
from seamlessflow_workers.weights.offers import Arrival
from seamlessflow_workers.weights.receiving import weights_receive

if TYPE_CHECKING:
    from seamlessflow.core.guidance.matching import Matcher


class QueueFullError(Exception):
    """The engine has as many unfinished requests as it may; try later or elsewhere."""


class EngineFailedError(RuntimeError):
    """The engine is dead; the message says why."""


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
    device: str = "cpu"  # cpu or cuda: decides which weight transports are possible
    model_folder: Path | None = None  # has the tokenizer that guided answers need


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """The model's limits that a request must respect."""

    vocab_size: int
    max_model_len: int
    eos_token_ids: frozenset[int]


class ServedEngine(ABC):
    """One engine behind one HTTP server. Coroutines and `submit` are called in the server's event loop only.

    Each kind of engine keeps `weight_version`, `is_asleep`, `kept_bytes` and `failure` up to date.
    """

    kind: str  # in /version
    can_guide = False  # whether it samples under masks

    def __init__(self, settings: EngineSettings, limits: ModelLimits) -> None:
        self.settings = settings
        self.limits = limits
        self._guides = GuideReader(
            settings.model_folder if self.can_guide else None,
            num_tokens=limits.vocab_size,
            eos_token_ids=limits.eos_token_ids,
        )
        self.in_flight: dict[str, list[ServedSequence]] = {}
        self.rejections: Counter[str] = Counter()
        self.weight_version = settings.weight_version
        self.is_asleep = False
        self.kept_bytes = 0  # of each device's memory, when it last fell asleep
        self.failure: BaseException | None = None  # why the engine is dead
        self.failed = asyncio.Event()
        self.is_steady = asyncio.Event()  # no update of the weights is open
        self.is_steady.set()
        self.staged_bytes: list[int] = []  # that each of the engine's workers read of the staged weights
        self._arrival: Arrival | None = None  # of the staged weights
        self._staged_path: Path | None = None

    def parse(self, raw: bytes) -> GenerateRequest:
        return parse_generate_body(
            raw, vocab_size=self.limits.vocab_size, max_model_len=self.limits.max_model_len
        )

    async def matcher(self, body: GenerateRequest) -> "Matcher | None":
        """Return the matcher of a guided request, made in a thread. Raises InvalidRequestError."""
        if body.sampling_params.structured_outputs is None:
            return None
        return await asyncio.to_thread(self._guides.matcher, body)

    def submit(self, body: GenerateRequest, matcher: "Matcher | None" = None) -> ServedSequence:
        """Admit a request. Raises QueueFullError at the queue's limit, EngineFailedError if the engine is dead."""
        if self.failure is not None:
            raise EngineFailedError(f"the engine failed: {self.failure}")
        if self.num_unfinished >= self.settings.max_num_queued_requests:
            self.rejections["max_num_queued_reqs"] += 1
            raise QueueFullError
        sequence = ServedSequence(
            request_id=body.request_id or uuid.uuid4().hex,
            body=body,
            eos_token_ids=self.limits.eos_token_ids,
            max_model_len=self.limits.max_model_len,
            matcher=matcher,
        )
        self.in_flight.setdefault(sequence.request_id, []).append(sequence)
        self._begin(sequence)
        return sequence

    def forget(self, sequence: ServedSequence) -> None:
        """Note that the request's handler is done. A sequence that still runs has lost its client and is aborted."""
        siblings = self.in_flight[sequence.request_id]
        siblings.remove(sequence)
        if not siblings:
            del self.in_flight[sequence.request_id]
        if sequence.finish_reason is None:
            self.abort([sequence])

    @property
    @abstractmethod
    def num_unfinished(self) -> int:
        """Return the number of admitted requests that have not finished."""

    @property
    @abstractmethod
    def is_paused(self) -> bool: ...

    @abstractmethod
    def start(self) -> None:
        """Start the engine. Called once, in the event loop, before the first request."""

    @abstractmethod
    async def stop(self) -> None: ...

    @abstractmethod
    def _begin(self, sequence: ServedSequence) -> None:
        """Start to compute the sequence; set `sequence.changed` whenever there is something new to read."""

    @abstractmethod
    def abort(self, sequences: Sequence[ServedSequence]) -> None:
        """End requests with finish reason `abort` and the tokens sampled so far; ignore finished ones."""

    @abstractmethod
    async def pause(self, mode: PauseMode, *, clear_cache: bool) -> None:
        """Return when nothing is computed any more: at once, or with `wait` once the running requests have ended."""

    @abstractmethod
    async def resume(self) -> None: ...

    async def stage_weights(self, path: Path, transport: WeightTransport) -> Arrival:
        """Receive, read and check the weights that `load_weights` of this path will load; the old ones go on serving.

        Raises WeightsError if they do not fit.
        """
        self._forget_staged()
        arrival = await asyncio.to_thread(weights_receive, path, transport, device=self.settings.device)
        try:
            await self._stage(arrival.folder)
        except BaseException:
            arrival.close()
            raise
        self._arrival, self._staged_path = arrival, path
        return arrival

    async def load_weights(self, path: Path) -> None:
        """Replace the weights; nothing is sampled until `set_weight_version` names them.

        Raises WeightsError if they do not fit; then nothing has changed.
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
        """Read and check; nothing is changed. Raises WeightsError."""

    @abstractmethod
    async def _apply_staged(self) -> None:
        """Load the weights that were staged last, and sample nothing until they are named."""

    @abstractmethod
    async def set_weight_version(self, version: str | None) -> None:
        """Name the loaded weights; None keeps the name."""

    @abstractmethod
    async def reset_prefix_cache(self, *, reset_running: bool) -> bool:
        """Empty the prefix cache; return False if running sequences still use it."""

    @abstractmethod
    async def sleep(self, mode: PauseMode, *, level: int) -> None:
        """Pause; at level 1 also free as much memory as the engine can."""

    @abstractmethod
    async def wake_up(self) -> None: ...

    @abstractmethod
    def metrics(self) -> str:
        """Return the metrics as Prometheus text, under vLLM's names."""
