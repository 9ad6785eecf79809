"""How fast engines sample while they are full: what each gateway counts, and what the sums of all mean."""

import asyncio
from collections.abc import AsyncGenerator
from typing import cast
from uuid import UUID

import pytest

from seamlessflow.core.placement.engine_key import EngineKey
from seamlessflow.core.trajectory.answer_progress import AnswerProgress, FinishReason, TokenChunk
from seamlessflow.data_plane.store.jobs import Engine
from seamlessflow.data_plane.turns.engines.client import EngineClient
from seamlessflow.data_plane.turns.engines.paces import HALF_LIFE_S, TurnPace
from seamlessflow.data_plane.turns.engines.pool import PACES_REPORTED_S, EnginePool, EngineRequest
from seamlessflow.data_plane.turns.engines.suspicions import SuspicionLog
from seamlessflow.data_plane.turns.engines.watch import EngineWatch
from seamlessflow.data_plane.turns.rollout_manager import Affinity, RolloutManager, Sampling

JOB, PHASE = UUID(int=1), UUID(int=7)
NUM_SLOTS = 4
RATE = 10.0  # tokens of one turn in a second


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Gateway:
    """A pool with one engine, and turns that sample at a steady rate until they are ended."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.pool = EnginePool(clock, max_held=10)
        self.pool.table_set([Engine(PHASE, JOB, "http://engine", 0, "token", NUM_SLOTS)])
        self._ends: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._turns: list[TurnPace] = []

    async def begin(self, num: int) -> None:
        for _ in range(num):
            self._ends.append(asyncio.Event())
            self._tasks.append(asyncio.create_task(self._turn(self._ends[-1])))
        await asyncio.sleep(0)

    async def end(self, num: int) -> None:
        for _ in range(num):
            self._turns.pop()
            self._ends.pop().set()
            await self._tasks.pop()

    def sample(self, num_tokens: float) -> None:
        """Let a piece of so many tokens arrive in each turn."""
        for turn in self._turns:
            turn.sampled(int(num_tokens), self.clock())

    def sums(self) -> tuple[float, float] | None:
        paces = self.pool.paces_due()
        assert paces is not None
        return paces.get(EngineKey(PHASE))

    async def _turn(self, end: asyncio.Event) -> None:
        async with self.pool.acquire(EngineRequest(JOB)) as (_, pace):
            self._turns.append(pace)
            await end.wait()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_a_full_engine_counts_its_tokens_and_seconds(clock: Clock) -> None:
    gateway = Gateway(clock)
    await gateway.begin(NUM_SLOTS)
    for _ in range(20):
        clock.now_s += 1.0
        gateway.sample(RATE)
    assert gateway.sums() == (20.0 * NUM_SLOTS * RATE, 20.0)


async def test_an_engine_that_is_not_full_counts_nothing(clock: Clock) -> None:
    """The tail of a batch is slower in all, and one turn alone is faster than one of many."""
    gateway = Gateway(clock)
    await gateway.begin(NUM_SLOTS - 1)
    clock.now_s += 50.0
    gateway.sample(50.0 * RATE)
    assert gateway.sums() is None


@pytest.mark.parametrize("is_whole", [True, False])
async def test_an_answer_counts_as_far_as_the_engine_was_full_meanwhile(clock: Clock, is_whole: bool) -> None:
    gateway = Gateway(clock)
    await gateway.begin(NUM_SLOTS)
    for _ in range(10):
        clock.now_s += 1.0
        if not is_whole:
            gateway.sample(RATE)
    if is_whole:
        gateway.sample(10.0 * RATE)
    await gateway.end(1)
    clock.now_s += 30.0  # the tail
    gateway.sample(30.0 * RATE)
    assert gateway.sums() == (10.0 * NUM_SLOTS * RATE, 10.0)


async def test_answers_that_come_whole_after_a_tail_count_what_they_sampled_before_it(clock: Clock) -> None:
    gateway = Gateway(clock)
    await gateway.begin(NUM_SLOTS)
    clock.now_s += 10.0
    await gateway.end(1)
    clock.now_s += 30.0
    gateway.sample(40.0 * RATE)
    assert gateway.sums() == (10.0 * (NUM_SLOTS - 1) * RATE, 10.0)


async def test_turns_that_wait_at_the_engine_make_it_no_faster(clock: Clock) -> None:
    gateway = Gateway(clock)
    await gateway.begin(NUM_SLOTS + 2)
    clock.now_s += 20.0
    gateway._turns[0].sampled(800, clock())
    assert gateway.sums() == (800.0, 20.0)


@pytest.mark.parametrize("mine, theirs", [(2, 2), (1, 3), (2, 4)])
async def test_the_sums_of_two_gateways_are_those_of_the_engine(clock: Clock, mine: int, theirs: int) -> None:
    """Each has a share of the engine: it would look half as fast if both counted all of its seconds."""
    gateways = {"a": Gateway(clock), "b": Gateway(clock)}
    for name, num in (("a", mine), ("b", theirs)):
        await gateways[name].begin(num)
    demands = {name: gateway.pool.demands() for name, gateway in gateways.items()}
    for name, gateway in gateways.items():
        gateway.pool.shares_set(name, demands)
    for _ in range(30):
        clock.now_s += 1.0
        for gateway in gateways.values():
            gateway.sample(60.0)
    sums = [gateway.sums() for gateway in gateways.values()]
    assert None not in sums
    assert sum(one[0] for one in sums if one) == pytest.approx(30 * 60 * (mine + theirs))
    assert sum(one[1] for one in sums if one) == pytest.approx(30.0)


async def test_old_tokens_and_seconds_weigh_less(clock: Clock) -> None:
    gateway = Gateway(clock)
    await gateway.begin(NUM_SLOTS)
    clock.now_s += 20.0
    gateway.sample(200)
    assert gateway.sums() == (800.0, 20.0)
    await gateway.end(1)
    clock.now_s += HALF_LIFE_S
    assert gateway.sums() == pytest.approx((400.0, 10.0))


async def test_paces_are_told_seldom(clock: Clock) -> None:
    pool = Gateway(clock).pool
    assert pool.paces_due() == {}
    clock.now_s += PACES_REPORTED_S - 0.1
    assert pool.paces_due() is None
    clock.now_s += 0.1
    assert pool.paces_due() == {}


async def test_the_next_phase_on_a_machine_begins_anew(clock: Clock) -> None:
    gateway = Gateway(clock)
    await gateway.begin(NUM_SLOTS)
    clock.now_s += 20.0
    gateway.sample(200)
    other = UUID(int=8)
    gateway.pool.table_set([Engine(other, JOB, "http://engine", 0, "token", NUM_SLOTS)])
    await gateway.end(NUM_SLOTS)
    assert gateway.sums() is None


class SteadyClient:
    """An engine's client whose engine samples RATE tokens in a second: one piece in a second, or all at the end."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def _piece(self, seconds: int, reason: FinishReason | None) -> TokenChunk:
        self.clock.now_s += seconds
        num = seconds * int(RATE)
        return TokenChunk(bytes(4 * num), bytes(4 * num), (0, 0), reason)

    async def generate(self, *_: object, is_streamed: bool) -> AsyncGenerator[TokenChunk, None]:
        num_pieces = 20 if is_streamed else 1
        for number in range(1, num_pieces + 1):
            yield self._piece(20 // num_pieces, FinishReason.LENGTH if number == num_pieces else None)


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_the_tokens_of_every_answer_count(clock: Clock, is_streamed: bool) -> None:
    pool = EnginePool(clock, max_held=10)
    pool.table_set([Engine(PHASE, JOB, "http://engine", 0, "token", num_slots=1)])
    client = cast(EngineClient, SteadyClient(clock))
    manager = RolloutManager(pool, client, EngineWatch(pool, client, clock, cast(SuspicionLog, None)), clock)
    progress = AnswerProgress(prompt_ids=bytes(4), max_tokens=200)
    sampling = Sampling(JOB, temperature=1.0, stop_token_ids=())
    pieces = manager.grow(progress, sampling, Affinity(), is_streamed=is_streamed)
    num_pieces = 20 if is_streamed else 1
    assert [piece.num_tokens async for piece in pieces] == [200 // num_pieces] * num_pieces
    paces = pool.paces_due()
    assert paces is not None
    assert paces[EngineKey(PHASE)] == pytest.approx((200.0, 20.0))
