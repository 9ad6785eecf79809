"""The clocks of one episode: each stage has its own time and its own limit.

Its caller reports when the stage changes and when a slice of waiting ended. Invariant: while the process stands still,
at most LATE_S are counted, and time of one stage is never counted against another.
"""

import asyncio
from collections.abc import Mapping

from seamlessflow.core.environment.stages import EpisodeStages, Stage

SLICE_S = 1.0
LATE_S = 0.5  # if a slice takes longer than its time plus this, the process was stopped; then only this much counts


class EpisodeClock:
    def __init__(self, limits_s: Mapping[Stage, float]) -> None:
        self.stages = EpisodeStages(on_change=self._count)
        self._limits_s = dict(limits_s)
        self._spent_s = dict.fromkeys(Stage, 0.0)
        self._slice_s = SLICE_S
        self._since_s = asyncio.get_running_loop().time()

    def spent_s(self, stage: Stage) -> float:
        return self._spent_s[stage]

    def limit_s(self, stage: Stage) -> float:
        return self._limits_s[stage]

    def extend(self, stage: Stage, limit_s: float) -> None:
        self._limits_s[stage] = limit_s

    async def late_stage(self, work: asyncio.Task[object]) -> Stage | None:
        """Wait until `work` is done (None), or until the time of the present stage is up."""
        while not work.done():
            now = self.stages.now
            left_s = self._limits_s[now] - self._spent_s[now]
            if left_s <= 0:
                return now
            self._slice_s = min(SLICE_S, left_s)
            await asyncio.wait({work}, timeout=self._slice_s)
            self._count()
        return None

    def _count(self) -> None:
        now_s = asyncio.get_running_loop().time()
        elapsed_s, self._since_s = now_s - self._since_s, now_s
        self._spent_s[self.stages.now] += elapsed_s if elapsed_s <= self._slice_s + LATE_S else LATE_S
