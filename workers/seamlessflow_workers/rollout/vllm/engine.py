"""The vLLM engine as the routes see it: one `AsyncLLM`, whose core and workers are processes of their own.

A task follows each request: it takes chunks as they come, whether or not the client reads, and wakes the handler.
Pauses, versions and aborts are vLLM's. This class adds the rest of the contract: nothing is sampled between
new weights and their name, a flawed file changes nothing, and requests that cannot run count as waiting.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest
from vllm.inputs import tokens_input
from vllm.v1.engine.async_llm import AsyncLLM

from seamlessflow_workers.rollout.serving.sequence import SequenceFinishReason, ServedSequence
from seamlessflow_workers.rollout.serving.served_engine import (
    EngineFailedError,
    EngineSettings,
    ModelLimits,
    PauseMode,
    ServedEngine,
)
from seamlessflow_workers.rollout.vllm.metrics import render_metrics
from seamlessflow_workers.rollout.vllm.outputs import sampling_params, sequence_take, versions_so_far
from seamlessflow_workers.weights.offers import WeightsError

logger = logging.getLogger(__name__)

# As in the embedded engine: with many streams, one wake-up per token costs more than the model.
STREAM_PERIOD_S = 0.02
WATCH_PERIOD_S = 0.5
STAGE_POLL_S = 0.01
Staged = tuple[str, int]  # see `weight_transfer.WeightFiles`


@dataclass(slots=True, eq=False)
class _Follower:
    sequence: ServedSequence
    task: asyncio.Task[None] | None = None
    has_begun: bool = False  # vLLM knows the request
    flush: asyncio.TimerHandle | None = None


class VllmEngine(ServedEngine):
    kind = "vllm"

    def __init__(
        self, llm: AsyncLLM, settings: EngineSettings, limits: ModelLimits, *, can_free_memory: bool
    ) -> None:
        self.can_guide = settings.device == "cpu"
        super().__init__(settings, limits)
        self._llm = llm
        self._can_free_memory = can_free_memory
        self._followers: dict[ServedSequence, _Follower] = {}
        self._aborts: set[asyncio.Task[None]] = set()  # kept from being collected
        self._parked: set[ServedSequence] = set()  # cannot run before the engine is resumed
        self._is_paused = False
        self._awaits_version = False  # weights were loaded, but their version is not named yet
        self._watch: asyncio.Task[None] | None = None

    @property
    def num_unfinished(self) -> int:
        return len(self._followers)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def start(self) -> None:
        self._watch = asyncio.create_task(self._watch_core())

    async def stop(self) -> None:
        tasks = [follower.task for follower in self._followers.values() if follower.task is not None]
        for task in [*tasks, *filter(None, [self._watch])]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._llm.shutdown)

    async def prepare(self, weights: Path | None) -> None:
        """Load weights other than the model's own, if any, and name the first version. Call before serving."""
        if weights is not None:
            await self._stage(weights)
            await self._put_in_place()
        await self._llm.update_weight_version(self.weight_version)

    # Requests.

    def _begin(self, sequence: ServedSequence) -> None:
        follower = _Follower(sequence)
        self._followers[sequence] = follower
        if self._is_paused or self._awaits_version:
            self._parked.add(sequence)
        follower.task = asyncio.create_task(self._follow(follower))

    async def _follow(self, follower: _Follower) -> None:
        sequence = follower.sequence
        prompt = tokens_input(
            sequence.tokens[: sequence.num_prompt_tokens].tolist(), cache_salt=sequence.cache_salt or None
        )
        follower.has_begun = True
        try:
            async for output in self._llm.generate(prompt, sampling_params(sequence), sequence.request_id):
                if sequence.num_cached_tokens is None:
                    sequence.num_cached_tokens = output.num_cached_tokens
                (completion,) = output.outputs
                versions = versions_so_far(self._llm.output_processor, sequence.request_id)
                sequence_take(sequence, completion, versions)
                sequence.follow_guide(completion.token_ids)
                if sequence.failure is not None:
                    await self._llm.abort(sequence.request_id)
                    break
                self._notify_soon(follower)
        except Exception as error:
            logger.exception("request %s failed", sequence.request_id)
            if self._llm.errored:
                self._fail(error)
            self._finish(follower, SequenceFinishReason.ERROR)
        finally:
            self._finish(follower, SequenceFinishReason.ABORT)

    def _notify_soon(self, follower: _Follower) -> None:
        """Wake the handler: at once for the first chunk, then at most every STREAM_PERIOD_S; `_finish` does so last."""
        sequence = follower.sequence
        if sequence.finish_reason is None and sequence.num_notified and follower.flush is None:
            loop = asyncio.get_running_loop()
            follower.flush = loop.call_later(STREAM_PERIOD_S, self._flush, follower)
        elif not sequence.num_notified:
            self._flush(follower)

    def _flush(self, follower: _Follower) -> None:
        follower.flush = None
        follower.sequence.num_notified = follower.sequence.num_generated
        follower.sequence.changed.set()

    def _finish(self, follower: _Follower, reason: SequenceFinishReason) -> None:
        """Finish the request, once, however it ended; `reason` applies only if vLLM gave none."""
        if self._followers.pop(follower.sequence, None) is None:
            return
        self._parked.discard(follower.sequence)
        if follower.flush is not None:
            follower.flush.cancel()
        if follower.sequence.finish_reason is None:
            follower.sequence.finish_reason = reason
        follower.sequence.changed.set()

    def abort(self, sequences: Sequence[ServedSequence]) -> None:
        followers = [self._followers[sequence] for sequence in sequences if sequence in self._followers]
        begun = [follower for follower in followers if follower.has_begun]
        for follower in followers:
            if not follower.has_begun and follower.task is not None:
                follower.task.cancel()
                self._finish(follower, SequenceFinishReason.ABORT)
        if begun:
            # vLLM answers each request with the tokens so far; the followers treat that like any other end.
            ids = list(dict.fromkeys(follower.sequence.request_id for follower in begun))
            task = asyncio.create_task(self._llm.abort(ids))
            self._aborts.add(task)
            task.add_done_callback(self._aborts.discard)

    # Control verbs.

    async def pause(self, mode: PauseMode, *, clear_cache: bool) -> None:
        self._is_paused = True
        await self._llm.pause_generation(mode=mode.value, clear_cache=clear_cache)
        if clear_cache:
            self._parked.update(self._followers)

    async def resume(self) -> None:
        self._is_paused = False
        if not self._awaits_version:
            await self._let_run()

    async def _apply_staged(self) -> None:
        self._awaits_version = True
        await self._llm.pause_generation(mode="keep", clear_cache=True)
        self._parked.update(self._followers)
        if self.is_asleep and self._can_free_memory:
            await self._llm.wake_up(tags=["weights"])
        try:
            await self._put_in_place()
        except Exception as error:
            self._fail(error)  # a mixture of weights must not serve
            raise EngineFailedError(f"the weights could not be loaded: {error}") from error

    async def _put_in_place(self) -> None:
        """Load the weights that the workers have staged, through vLLM's weight transfer; the version is named later."""
        await self._llm.start_weight_update()
        await self._llm.update_weights(WeightTransferUpdateRequest())
        await self._llm.finish_weight_update()

    async def set_weight_version(self, version: str | None) -> None:
        if version is not None:
            await self._llm.update_weight_version(version)
            self.weight_version = version
        was_waiting, self._awaits_version = self._awaits_version, False
        if was_waiting and not self._is_paused:
            await self._let_run()

    async def reset_prefix_cache(self, *, reset_running: bool) -> bool:
        return bool(await self._llm.reset_prefix_cache(reset_running_requests=reset_running))

    async def sleep(self, mode: PauseMode, *, level: int) -> None:
        """Pause. Level 1 also frees the memory of weights and cache if vLLM can (CUDA), or else empties the cache."""
        self._is_paused = True
        if level and self._can_free_memory:
            await self._llm.sleep(level=1, mode=mode.value)
            self.kept_bytes = max(await self._llm.collective_rpc("device_bytes_kept"))
        else:
            await self._llm.pause_generation(mode=mode.value, clear_cache=bool(level))
        if level:
            self.is_asleep = True
            self._parked.update(self._followers)

    async def wake_up(self) -> None:
        if self.is_asleep and self._can_free_memory:
            await self._llm.wake_up()
        self.is_asleep = False
        await self.resume()

    def metrics(self) -> str:
        return render_metrics(
            model_name=self.settings.model_name,
            num_unfinished=self.num_unfinished,
            num_parked=len(self._parked),
            rejections=dict(self.rejections),
        )

    async def _let_run(self) -> None:
        self._parked.clear()
        await self._llm.resume_generation()

    async def _stage(self, path: Path) -> None:
        """Stage in every worker, which goes on computing meanwhile. Raises WeightsError."""
        await self._llm.collective_rpc("stage_weights_begin", args=(str(path),))
        staged: list[Staged | None] = []
        while not staged or None in staged:
            if staged:
                await asyncio.sleep(STAGE_POLL_S)
            answers = await self._llm.collective_rpc("stage_weights_end")
            staged = [answer or former for answer, former in zip(answers, staged or answers, strict=True)]
        self.staged_bytes = [num_bytes for _, num_bytes in filter(None, staged)]
        if refusal := next((problem for problem, _ in filter(None, staged) if problem), ""):
            raise WeightsError(refusal)

    # Failures.

    async def _watch_core(self) -> None:
        """Watch for the death of vLLM's core, which no request would notice while the engine is idle."""
        while not self._llm.errored:  # noqa: ASYNC110 - another process: there is no event
            await asyncio.sleep(WATCH_PERIOD_S)
        self._fail(self._llm.dead_error)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.failed.set()
