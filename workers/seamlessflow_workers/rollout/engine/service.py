"""The embedded engine as the routes see it: verbs become commands to the engine's thread, its news wakes requests.

One call into the event loop per step wakes every request that has something new, however many tokens that is.
"""

import asyncio
from collections.abc import Sequence as Series
from pathlib import Path

from seamlessflow_workers.rollout.engine.engine import Engine
from seamlessflow_workers.rollout.engine.metrics import render_metrics
from seamlessflow_workers.rollout.engine.runner import ModelRunner, StagedWeights
from seamlessflow_workers.rollout.engine.sequence import FinishReason, Sequence
from seamlessflow_workers.rollout.engine.served_engine import (
    EngineSettings,
    ModelLimits,
    PauseMode,
    ServedEngine,
)
from seamlessflow_workers.weights.arrival import Arrival


class EngineService(ServedEngine):
    kind = "seamlessflow-embedded"

    def __init__(self, runner: ModelRunner, settings: EngineSettings) -> None:
        super().__init__(
            settings,
            ModelLimits(
                vocab_size=runner.vocab_size,
                max_model_len=runner.max_model_len,
                eos_token_ids=runner.eos_token_ids,
            ),
        )
        self._runner = runner
        self._loop: asyncio.AbstractEventLoop | None = None
        self._staged: StagedWeights | None = None
        self.engine = Engine(
            runner,
            weight_version=settings.weight_version,
            seed=settings.seed,
            max_batched_tokens=settings.max_batched_tokens,
            notify=self._notify,
            on_failure=self._tell_failure,
        )

    @property
    def failure(self) -> BaseException | None:
        return self.engine.failure

    @property
    def num_unfinished(self) -> int:
        return self.engine.num_unfinished

    @property
    def weight_version(self) -> str:
        return self.engine.weight_version

    @property
    def is_paused(self) -> bool:
        return self.engine.is_paused

    @property
    def is_asleep(self) -> bool:
        return self.engine.is_asleep

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.engine.start()

    async def stop(self) -> None:
        self.engine.stop()

    def _begin(self, sequence: Sequence) -> None:
        seed = sequence.params.seed
        sequence.seed = self.engine.new_seed() if seed is None else seed
        self.engine.submit(sequence)

    def abort(self, sequences: Series[Sequence]) -> None:
        self.engine.abort(list(sequences))

    async def pause(self, mode: PauseMode, *, clear_cache: bool) -> None:
        await asyncio.wrap_future(self.engine.pause(mode, clear_cache=clear_cache))

    async def resume(self) -> None:
        await asyncio.wrap_future(self.engine.resume())

    async def _stage(self, path: Path) -> None:
        self._staged = await asyncio.to_thread(self._runner.stage_weights, path)

    async def _stage_from_card(self, path: Path) -> Arrival:
        arrival, self._staged = await asyncio.to_thread(self._runner.stage_from_card, path)
        return arrival

    async def _apply_staged(self) -> None:
        """Copied between two tokens."""
        staged, self._staged = self._staged, None
        assert staged is not None
        await asyncio.wrap_future(self.engine.apply_weights(staged))

    async def set_weight_version(self, version: str | None) -> None:
        await asyncio.wrap_future(self.engine.set_weight_version(version))

    async def reset_prefix_cache(self, *, reset_running: bool) -> bool:
        return await asyncio.wrap_future(self.engine.reset_prefix_cache(reset_running=reset_running))

    async def sleep(self, mode: PauseMode, *, level: int) -> None:
        """Level 1 frees the KV cache; the weights stay where they are."""
        await asyncio.wrap_future(self.engine.pause(mode, clear_cache=False))
        if level:
            await asyncio.wrap_future(self.engine.sleep())

    async def wake_up(self) -> None:
        await asyncio.wrap_future(self.engine.wake_up())

    def metrics(self) -> str:
        return render_metrics(
            self.engine, model_name=self.settings.model_name, rejections=dict(self.rejections)
        )

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
