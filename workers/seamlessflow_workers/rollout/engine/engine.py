"""The embedded engine: its thread steps the model and, between two steps, carries out control verbs.

Requests and verbs come from the server's event loop and go to the thread as commands; each verb returns once it has
taken effect. States: running; paused to new requests (`abort`, `wait`); paused to all (`keep`); asleep (paused, without
a cache); awaiting a version (new weights are loaded but their version is not named yet, so nothing is sampled that
could not be labelled). Invariant: every command takes effect between two tokens, never within a step.
"""

import asyncio
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from enum import Enum, auto
from pathlib import Path
from typing import TypeVar

from seamlessflow_workers.rollout.engine.metrics import render_metrics
from seamlessflow_workers.rollout.engine.runner import ModelRunner, StagedWeights
from seamlessflow_workers.rollout.engine.scheduler import Scheduler
from seamlessflow_workers.rollout.serving.sequence import SequenceFinishReason, ServedSequence
from seamlessflow_workers.rollout.serving.served_engine import (
    EngineSettings,
    ModelLimits,
    PauseMode,
    ServedEngine,
)
from seamlessflow_workers.weights.freed_memory import freed_memory_return

logger = logging.getLogger(__name__)

# Streams learn of new tokens at most this often: with 64 streams, one wake-up per token costs more than the model.
STREAM_PERIOD_S = 0.02
RETURNED_FROM_BYTES = 2**26  # of staged weights; less is kept, for the next ones

T = TypeVar("T")


class _Gate(Enum):
    OPEN = auto()
    CLOSED_TO_NEW = auto()
    CLOSED = auto()


class EmbeddedEngine(ServedEngine):
    kind = "seamlessflow-embedded"
    can_guide = True

    def __init__(self, runner: ModelRunner, settings: EngineSettings) -> None:
        limits = ModelLimits(
            vocab_size=runner.vocab_size,
            max_model_len=runner.max_model_len,
            eos_token_ids=runner.eos_token_ids,
        )
        super().__init__(settings, limits)
        self._runner = runner
        self.scheduler = Scheduler(runner, max_batched_tokens=settings.max_batched_tokens)
        self._random = random.Random(settings.seed)
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._gate = _Gate.OPEN
        self._awaits_version = False
        self._staged: StagedWeights | None = None
        self._drained: list[tuple[Future[None], bool]] = []  # with whether to clear the cache
        self._num_unfinished = 0  # written by `_count_lock` holders only
        self._count_lock = threading.Lock()
        self._last_flush_at = 0.0
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def num_unfinished(self) -> int:
        return self._num_unfinished

    @property
    def is_paused(self) -> bool:
        return self._gate is not _Gate.OPEN

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        def halt() -> None:
            self._is_stopping = True

        self._commands.put(halt)
        self._thread.join()

    def _begin(self, sequence: ServedSequence) -> None:
        seed = sequence.params.seed
        sequence.seed = self._random.getrandbits(64) if seed is None else seed
        with self._count_lock:
            self._num_unfinished += 1
        self._commands.put(lambda: self.scheduler.add(sequence))

    def abort(self, sequences: Sequence[ServedSequence]) -> None:
        aborted = list(sequences)

        def act() -> None:
            for sequence in aborted:
                self.scheduler.abort(sequence)
            self._finish(aborted)

        self._order(act)

    async def pause(self, mode: PauseMode, *, clear_cache: bool) -> None:
        done: Future[None] = Future()

        def act() -> None:
            self._close(mode)
            if mode is PauseMode.WAIT and self.scheduler.num_running:
                self._drained.append((done, clear_cache))
                return
            self._clear_if(clear_cache)
            done.set_result(None)

        self._commands.put(_guarded(act, done))
        await _until(done)

    async def resume(self) -> None:
        def act() -> None:
            self._gate = _Gate.OPEN
            self._resolve_drained()

        await self._call(act)

    async def _stage(self, path: Path) -> None:
        def stage() -> None:
            # Returns nothing: the pool's thread may keep a result a little longer than we do.
            self._staged = self._runner.stage_weights(path)
            self.staged_bytes = [self._staged.num_bytes]

        await asyncio.to_thread(stage)

    async def _apply_staged(self) -> None:
        staged, self._staged = self._staged, None
        assert staged is not None

        def act() -> None:
            self._awaits_version = (
                True  # first: if applying fails half-way, nothing is sampled from the mixture
            )
            self.scheduler.forget_prefixes()
            staged.apply()

        await self._call(act)

    async def set_weight_version(self, version: str | None) -> None:
        def act() -> None:
            self._awaits_version = False
            if version is not None:
                self.weight_version = version

        await self._call(act)
        if sum(self.staged_bytes) >= RETURNED_FROM_BYTES:
            await asyncio.to_thread(freed_memory_return)  # of the staged weights, while sampling goes on

    async def reset_prefix_cache(self, *, reset_running: bool) -> bool:
        """Forget the free rows; return False, as vLLM does, if running sequences still use others."""

        def act() -> bool:
            if reset_running:
                self.scheduler.preempt_all()
            self.scheduler.forget_prefixes()
            return self.scheduler.num_running == 0

        return await self._call(act)

    async def sleep(self, mode: PauseMode, *, level: int) -> None:
        """Pause. Level 1 also frees the KV cache: what still runs is computed again after `wake_up`. Weights stay."""

        def act() -> None:
            if self._gate is _Gate.OPEN:
                self._gate = _Gate.CLOSED
            if not self.is_asleep:
                self.scheduler.preempt_all()
                self.kept_bytes = self._runner.release_cache()
            self.is_asleep = True

        await self.pause(mode, clear_cache=False)
        if level:
            await self._call(act)

    async def wake_up(self) -> None:
        def act() -> None:
            if self.is_asleep:
                self._runner.allocate_cache()
            self.is_asleep = False
            self._gate = _Gate.OPEN
            self._resolve_drained()

        await self._call(act)

    def metrics(self) -> str:
        return render_metrics(
            self.scheduler,
            model_name=self.settings.model_name,
            num_unfinished=self.num_unfinished,
            is_asleep=self.is_asleep,
            rejections=dict(self.rejections),
        )

    async def _call(self, act: Callable[[], T]) -> T:
        return await _until(self._order(act))

    def _order(self, act: Callable[[], T]) -> Future[T]:
        """Have the engine's thread run `act` between two steps."""
        done: Future[T] = Future()
        self._commands.put(_guarded(lambda: done.set_result(act()), done))
        return done

    def _run(self) -> None:
        """Run the engine's thread: everything below happens in it."""
        try:
            while not self._is_stopping:
                self._obey(is_idle=not self._step())
        except Exception as error:
            logger.exception("the engine failed")
            self.failure = error
            self._tell_loop(self._fail)

    def _obey(self, *, is_idle: bool) -> None:
        """Run the commands that wait; when there is nothing to compute, sleep until one comes."""
        if self._drained and not self.scheduler.num_running:
            self._resolve_drained()
        if is_idle:
            self._flush_streams(is_due=True)
            self._commands.get()()
        while not self._commands.empty():
            self._commands.get_nowait()()

    def _step(self) -> bool:
        """Compute one token for each running sequence; return False if there was nothing to do."""
        scheduler = self.scheduler
        if self._gate is _Gate.CLOSED or self._awaits_version or self.is_asleep:
            return False
        if scheduler.waiting and self._gate is _Gate.OPEN:
            scheduler.admit()
        batch = scheduler.plan(weight_version=self.weight_version)
        if batch is None:
            return False
        sequences = scheduler.commit(batch, self._runner.step(batch))
        self._publish(sequences)
        return True

    def _publish(self, sequences: list[ServedSequence]) -> None:
        finished = [sequence for sequence in sequences if sequence.finish_reason is not None]
        if finished:
            self._finish(finished)
        first = [s for s in sequences if s.is_streaming and not s.num_notified and s.finish_reason is None]
        if first:
            self._notify_streams(first)
        self._flush_streams(is_due=time.monotonic() - self._last_flush_at >= STREAM_PERIOD_S)

    def _flush_streams(self, *, is_due: bool) -> None:
        if not is_due:
            return
        self._last_flush_at = time.monotonic()
        due = [
            sequence
            for sequence in self.scheduler.decoding
            if sequence.is_streaming
            and sequence.num_generated - sequence.num_notified >= (sequence.params.stream_interval or 1)
        ]
        if due:
            self._notify_streams(due)

    def _notify_streams(self, sequences: list[ServedSequence]) -> None:
        for sequence in sequences:
            sequence.num_notified = sequence.num_generated
        self._notify(sequences)

    def _finish(self, sequences: list[ServedSequence]) -> None:
        finished = [sequence for sequence in sequences if not sequence.is_reported]
        for sequence in finished:
            sequence.is_reported = True
        with self._count_lock:
            self._num_unfinished -= len(finished)
        self._notify(finished)

    def _notify(self, sequences: list[ServedSequence]) -> None:
        """Wake the handlers of these requests, with one call into the event loop however many they are."""
        if sequences:
            self._tell_loop(lambda: _wake(sequences))

    def _close(self, mode: PauseMode) -> None:
        self._gate = _Gate.CLOSED if mode is PauseMode.KEEP else _Gate.CLOSED_TO_NEW
        if mode is PauseMode.ABORT:
            unfinished = self.scheduler.unfinished
            for sequence in unfinished:
                self.scheduler.abort(sequence)
            self._finish(unfinished)

    def _clear_if(self, clear_cache: bool) -> None:
        if clear_cache:
            self.scheduler.preempt_all()

    def _resolve_drained(self) -> None:
        for future, clear_cache in self._drained:
            self._clear_if(clear_cache and self._gate is not _Gate.OPEN)
            future.set_result(None)
        self._drained.clear()

    def _tell_loop(self, act: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)

    def _fail(self) -> None:
        """Wake all requests, in the event loop. The engine's thread has ended, so no other thread writes to
        sequences."""
        self.failed.set()
        for sequence in (sequence for siblings in self.in_flight.values() for sequence in siblings):
            if sequence.finish_reason is None:
                sequence.finish_reason = SequenceFinishReason.ERROR
            sequence.changed.set()


def _wake(sequences: list[ServedSequence]) -> None:
    for sequence in sequences:
        sequence.changed.set()


async def _until(done: Future[T]) -> T:
    """Wait for the engine's thread. A caller that gives up must not cancel what that thread is about to resolve."""
    return await asyncio.shield(asyncio.wrap_future(done))


def _guarded(act: Callable[[], None], done: Future[T]) -> Callable[[], None]:
    """Return `act` with its failure reported to the caller of the verb, so that the engine goes on."""

    def run() -> None:
        try:
            act()
        except Exception as error:
            logger.exception("a control verb failed")
            done.set_exception(error)

    return run
