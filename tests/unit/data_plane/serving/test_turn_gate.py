"""Turns begin in turn: the flood of a job waits in its own lines, and refusals of a job go out one by one."""

import asyncio
from uuid import UUID

from seamlessflow.core.admission.fair_queue import is_full_for
from seamlessflow.core.admission.loop_quotas import RequestUse
from seamlessflow.data_plane.serving.bounds import LONGEST_PACE_S, PACE_S, PacedRefusals
from seamlessflow.data_plane.serving.turn_gate import PER_ROUND, TurnGate

FLOODING, OTHER = UUID(int=1), UUID(int=2)


class Entering:
    """Notes in which order turns begin."""

    def __init__(self, *, tick_s: float = 0.01) -> None:
        self.now_s, self.tick_s = 100.0, tick_s
        self.gate, self.begun = TurnGate(self._clock), list[tuple[UUID, int]]()
        self.uses = list[RequestUse]()
        self.tasks: list[asyncio.Task[None]] = []

    def _clock(self) -> float:
        self.now_s += self.tick_s
        return self.now_s

    def turns(self, job: UUID, session: int, num: int) -> None:
        self.tasks += [asyncio.create_task(self._enter(job, session)) for _ in range(num)]

    async def _enter(self, job: UUID, session: int) -> None:
        self.uses.append(await self.gate.enter(job, UUID(int=session)))
        self.begun.append((job, session))

    async def all_begun(self) -> None:
        async with asyncio.timeout(5):
            await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_another_jobs_turn_waits_for_a_round_and_not_for_the_flood() -> None:
    entering = Entering()
    entering.turns(FLOODING, 1, 500)
    entering.turns(OTHER, 9, 2)
    await entering.all_begun()
    assert len(entering.begun) == 502
    assert [place for place, (job, _) in enumerate(entering.begun) if job == OTHER][-1] < 3 * PER_ROUND


async def test_within_a_job_the_sessions_take_turns() -> None:
    entering = Entering()
    entering.turns(FLOODING, 1, 100)
    entering.turns(FLOODING, 2, 3)
    await entering.all_begun()
    assert [place for place, (_, session) in enumerate(entering.begun) if session == 2][-1] < 4 * PER_ROUND


async def test_a_round_lets_only_few_begin_so_that_others_are_served_meanwhile() -> None:
    entering = Entering()
    entering.turns(FLOODING, 1, 40)
    seen = []
    while len(entering.begun) < 40:
        await asyncio.sleep(0)
        seen.append(len(entering.begun))
    assert max(later - before for before, later in zip([0, *seen], seen, strict=False)) <= 2 * PER_ROUND


async def test_a_turn_whose_client_leaves_keeps_nobody_waiting() -> None:
    entering = Entering()
    entering.turns(FLOODING, 1, 50)
    await asyncio.sleep(0)
    for task in entering.tasks[10:40]:
        task.cancel()
    entering.turns(OTHER, 9, 1)
    await entering.all_begun()
    assert len(entering.begun) == 21


async def test_a_few_turns_enter_without_waiting() -> None:
    gate = TurnGate(lambda: 100.0)
    for number in range(PER_ROUND):
        entering = gate.enter(FLOODING, UUID(int=number))
        try:
            entering.send(None)
        except StopIteration:
            continue
        raise AssertionError("a turn waited though nobody else was there")


async def test_a_job_that_has_used_its_part_waits_until_the_loop_has_time_to_spare() -> None:
    entering = Entering(tick_s=0.0)
    entering.turns(FLOODING, 1, 1)
    entering.turns(OTHER, 9, 1)
    await entering.all_begun()
    entering.uses[0].add(1.0)
    entering.turns(FLOODING, 1, 20)
    entering.turns(OTHER, 9, 1)
    await entering.tasks[-1]
    assert entering.begun[2:] == [(OTHER, 9)]

    entering.now_s += 1.0
    await entering.all_begun()
    assert len(entering.begun) == 23


async def test_refusals_of_a_job_go_out_one_after_the_other_and_each_in_time() -> None:
    now_s, waited = 100.0, list[float]()

    async def sleep(delay_s: float) -> None:
        waited.append(delay_s)

    refusals = PacedRefusals(lambda: now_s, sleep)
    for _ in range(3):
        await refusals.wait(FLOODING)
    await refusals.wait(OTHER)
    assert [round(each, 6) for each in waited] == [PACE_S, 2 * PACE_S]

    for _ in range(5000):
        await refusals.wait(FLOODING)
    assert max(waited) <= LONGEST_PACE_S + PACE_S


def test_a_full_queue_still_takes_what_is_less_than_a_jobs_part() -> None:
    def is_full(num_of_job: int, num_in_all: int, num_jobs: int) -> bool:
        return is_full_for(num_of_job=num_of_job, num_in_all=num_in_all, num_jobs=num_jobs, limit=100)

    assert not is_full(99, 99, 1)
    assert is_full(100, 100, 1)
    assert is_full(100, 100, 2)
    assert not is_full(0, 100, 2)
    assert is_full(50, 150, 2)
