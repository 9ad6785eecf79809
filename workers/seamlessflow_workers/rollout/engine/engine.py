"""The engine's thread: steps the model, and between two steps obeys control verbs.

Requests and verbs enter from any thread as commands; each verb returns a future that is done when it has taken
effect. States: running; paused to new requests (`abort`, `wait`); paused to all (`keep`); asleep (paused, no cache);
held (weights applied, their version not told yet: nothing is sampled that could not be labelled). Invariant: every
command takes effect between two tokens, never within a step.
"""

import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum, auto
from typing import TypeVar

from seamlessflow_workers.rollout.engine.runner import ModelRunner, StagedWeights
from seamlessflow_workers.rollout.engine.scheduler import Scheduler
from seamlessflow_workers.rollout.engine.sequence import Sequence
from seamlessflow_workers.rollout.engine.served_engine import PauseMode

logger = logging.getLogger(__name__)

# Streams learn of new tokens at most this often: at 64 streams a wake-up a token costs more than the model.
STREAM_PERIOD_S = 0.02

T = TypeVar("T")


class _Gate(Enum):
    OPEN = auto()
    CLOSED_TO_NEW = auto()
    CLOSED = auto()


class Engine:
    def __init__(
        self,
        runner: ModelRunner,
        *,
        weight_version: str,
        seed: int,
        max_batched_tokens: int,
        notify: Callable[[list[Sequence]], None],
        on_failure: Callable[[], None],
    ) -> None:
        self._runner = runner
        self.scheduler = Scheduler(runner, max_batched_tokens=max_batched_tokens)
        self.weight_version = weight_version
        self._random = random.Random(seed)
        self._notify = notify
        self._on_failure = on_failure
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._gate = _Gate.OPEN
        self._is_held = False
        self.is_asleep = False
        self._drained: list[tuple[Future[None], bool]] = []  # with whether to clear the cache
        self._num_unfinished = 0  # admitted and not yet finished; written by `_count_lock` holders only
        self._count_lock = threading.Lock()
        self._last_flush_at = 0.0
        self._is_stopping = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        def halt() -> None:
            self._is_stopping = True

        self._commands.put(halt)
        self._thread.join()

    @property
    def num_unfinished(self) -> int:
        return self._num_unfinished

    @property
    def is_paused(self) -> bool:
        return self._gate is not _Gate.OPEN

    def new_seed(self) -> int:
        return self._random.getrandbits(64)

    def submit(self, sequence: Sequence) -> None:
        with self._count_lock:
            self._num_unfinished += 1
        self._commands.put(lambda: self.scheduler.add(sequence))

    def abort(self, sequences: list[Sequence]) -> Future[None]:
        def act() -> None:
            for sequence in sequences:
                self.scheduler.abort(sequence)
            self._finish(sequences)

        return self._call(act)

    def pause(self, mode: PauseMode, *, clear_cache: bool) -> Future[None]:
        """Done when nothing is computed any more: at once, or with `wait` after what runs has ended."""
        done: Future[None] = Future()

        def act() -> None:
            self._close(mode)
            if mode is PauseMode.WAIT and self.scheduler.num_running:
                self._drained.append((done, clear_cache))
                return
            self._clear_if(clear_cache)
            done.set_result(None)

        self._commands.put(_guarded(act, done))
        return done

    def resume(self) -> Future[None]:
        def act() -> None:
            self._gate = _Gate.OPEN
            self._resolve_drained()

        return self._call(act)

    def apply_weights(self, staged: StagedWeights) -> Future[None]:
        """Swap the weights in place; nothing is sampled until `set_weight_version` names them."""

        def act() -> None:
            self._is_held = True  # first: should applying fail half-way, nothing is sampled from the mixture
            self.scheduler.forget_prefixes()
            staged.apply()

        return self._call(act)

    def set_weight_version(self, version: str | None) -> Future[None]:
        def act() -> None:
            self._is_held = False
            if version is not None:
                self.weight_version = version

        return self._call(act)

    def reset_prefix_cache(self, *, reset_running: bool) -> Future[bool]:
        """False when running sequences still hold rows, as vLLM answers; free rows are forgotten all the same."""

        def act() -> bool:
            if reset_running:
                self.scheduler.preempt_all()
            self.scheduler.forget_prefixes()
            return self.scheduler.num_running == 0

        return self._call(act)

    def sleep(self) -> Future[None]:
        """Free the KV cache; what still runs waits and is computed again after `wake_up`."""

        def act() -> None:
            if self._gate is _Gate.OPEN:
                self._gate = _Gate.CLOSED
            if not self.is_asleep:
                self.scheduler.preempt_all()
                self._runner.release_cache()
            self.is_asleep = True

        return self._call(act)

    def wake_up(self) -> Future[None]:
        def act() -> None:
            if self.is_asleep:
                self._runner.allocate_cache()
            self.is_asleep = False
            self._gate = _Gate.OPEN
            self._resolve_drained()

        return self._call(act)

    # The engine's thread.

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._obey(is_idle=not self._step())
        except Exception as error:
            logger.exception("the engine failed")
            self.failure = error
            self._on_failure()

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
        """Compute one token for everything that runs; False when there was nothing to do."""
        scheduler = self.scheduler
        if self._gate is _Gate.CLOSED or self._is_held or self.is_asleep:
            return False
        if scheduler.waiting and self._gate is _Gate.OPEN:
            scheduler.admit()
        batch = scheduler.plan(weight_version=self.weight_version)
        if batch is None:
            return False
        sequences = scheduler.commit(batch, self._runner.step(batch))
        self._publish(sequences)
        return True

    def _publish(self, sequences: list[Sequence]) -> None:
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

    def _notify_streams(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            sequence.num_notified = sequence.num_generated
        self._notify(sequences)

    def _finish(self, sequences: list[Sequence]) -> None:
        finished = [sequence for sequence in sequences if not sequence.is_reported]
        for sequence in finished:
            sequence.is_reported = True
        with self._count_lock:
            self._num_unfinished -= len(finished)
        self._notify(finished)

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

    def _call(self, act: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()
        self._commands.put(_guarded(lambda: done.set_result(act()), done))
        return done


def _guarded(act: Callable[[], None], done: Future[T]) -> Callable[[], None]:
    """A verb that fails tells its caller; the engine goes on."""

    def run() -> None:
        try:
            act()
        except Exception as error:
            logger.exception("a control verb failed")
            done.set_exception(error)

    return run
