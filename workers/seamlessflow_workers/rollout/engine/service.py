"""What the HTTP routes share: the engine, the admission bound, the requests in flight, the events that wake them.

One call into the event loop per step wakes every request that has something new, however many tokens that is.
"""

import asyncio
import uuid
from collections import Counter
from dataclasses import dataclass

from seamlessflow_workers.rollout.engine.engine import Engine, EngineFailedError
from seamlessflow_workers.rollout.engine.request import GenerateRequest, parse_generate_body
from seamlessflow_workers.rollout.engine.runner import ModelRunner
from seamlessflow_workers.rollout.engine.sequence import FinishReason, Sequence


class QueueFullError(Exception):
    """More unfinished requests than the engine was started to hold; try later or elsewhere."""


class ProtocolOrderError(ValueError):
    """A weight-update call that does not follow the one before it."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    model_name: str
    weight_version: str = "default"
    max_batched_tokens: int = 512
    max_num_queued_requests: int = 1024
    seed: int = 0


class EngineService:
    def __init__(self, runner: ModelRunner, settings: EngineSettings) -> None:
        self.runner = runner
        self.settings = settings
        self.in_flight: dict[str, list[Sequence]] = {}
        self.rejections: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.update_lock = asyncio.Lock()
        self.is_update_open = False
        self.is_update_applied = False
        self.failed = asyncio.Event()
        self.engine = Engine(
            runner,
            weight_version=settings.weight_version,
            seed=settings.seed,
            max_batched_tokens=settings.max_batched_tokens,
            notify=self._notify,
            on_failure=self._tell_failure,
        )

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.engine.start()

    def parse(self, raw: bytes) -> GenerateRequest:
        return parse_generate_body(
            raw, vocab_size=self.runner.vocab_size, max_model_len=self.runner.max_model_len
        )

    def submit(self, body: GenerateRequest) -> Sequence:
        """Raise `QueueFullError` rather than queue without bound."""
        if self.engine.failure is not None:
            raise EngineFailedError(f"the engine failed: {self.engine.failure}")
        if self.engine.num_unfinished >= self.settings.max_num_queued_requests:
            self.rejections["max_num_queued_reqs"] += 1
            raise QueueFullError
        seed = body.sampling_params.seed
        sequence = Sequence(
            request_id=body.request_id or uuid.uuid4().hex,
            body=body,
            eos_token_ids=self.runner.eos_token_ids,
            max_model_len=self.runner.max_model_len,
            seed=self.engine.new_seed() if seed is None else seed,
        )
        self.in_flight.setdefault(sequence.request_id, []).append(sequence)
        self.engine.submit(sequence)
        return sequence

    def forget(self, sequence: Sequence) -> None:
        """The request's handler is done with it; what still runs has lost its client and is aborted."""
        siblings = self.in_flight[sequence.request_id]
        siblings.remove(sequence)
        if not siblings:
            del self.in_flight[sequence.request_id]
        if sequence.finish_reason is None:
            self.engine.abort([sequence])

    def _notify(self, sequences: list[Sequence]) -> None:
        if sequences and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_wake, sequences)

    def _tell_failure(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fail)

    def _fail(self) -> None:
        """Nobody waits for ever on a dead engine. Its thread has ended, so the sequences are ours to end."""
        self.failed.set()
        for sequence in (sequence for siblings in self.in_flight.values() for sequence in siblings):
            if sequence.finish_reason is None:
                sequence.finish_reason = FinishReason.ERROR
            sequence.changed.set()


def _wake(sequences: list[Sequence]) -> None:
    for sequence in sequences:
        sequence.changed.set()
