"""The engine pool: which engine serves which turn, in which order, and how engines are released."""

import asyncio
from uuid import UUID

import pytest

from seamlessflow.core.placement.engine_key import EngineKey
from seamlessflow.data_plane.store.jobs import Engine
from seamlessflow.data_plane.turns.engines.pool import EnginePool, EngineRequest, JobOver, TooManyWaiting
from seamlessflow.data_plane.turns.rollout_manager import Affinity

JOB, OTHER_JOB = UUID(int=1), UUID(int=2)
NUM_SLOTS = 4
CAPACITY = 6  # the slots and the turns queued behind them


FIRST = EngineKey(UUID(int=1))
SECOND = EngineKey(UUID(int=2))


def engine(number: int, *, version: int = 0, job: UUID = JOB, replica: int = 0, start: int = 0) -> Engine:
    """`start`: how often it was started again, each time at another address."""
    endpoint = f"http://engine-{number}-{replica}-{start}"
    return Engine(UUID(int=number), job, endpoint, version, "token", NUM_SLOTS, replica)


class Turns:
    """Turns that keep their engine until they are released."""

    def __init__(self, pool: EnginePool) -> None:
        self.pool = pool
        self.served: list[tuple[str, EngineKey]] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, name: str, request: EngineRequest) -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._hold(name, request))
        await finalize()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await finalize()

    async def _hold(self, name: str, request: EngineRequest) -> None:
        async with self.pool.acquire(request) as (chosen, _):
            self.served.append((name, chosen.key))
            await self._ends[name].wait()


async def finalize() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def pool() -> EnginePool:
    return EnginePool(lambda: 0.0, max_held=10)


@pytest.fixture
def turns(pool: EnginePool) -> Turns:
    return Turns(pool)


async def fill(turns: Turns, pool: EnginePool) -> None:
    pool.table_set([engine(1)])
    for number in range(CAPACITY):
        await turns.start(f"first {number}", EngineRequest(JOB, order=number))
    assert len(turns.served) == CAPACITY


async def test_an_engine_that_joins_takes_turns_that_wait_for_a_full_one(
    pool: EnginePool, turns: Turns
) -> None:
    await fill(turns, pool)
    await turns.start("late", EngineRequest(JOB, order=9))
    assert len(turns.served) == CAPACITY

    pool.table_set([engine(1), engine(2)])
    await finalize()

    assert turns.served[-1] == ("late", SECOND)


async def test_of_those_who_wait_the_session_that_began_first_is_served_first(
    pool: EnginePool, turns: Turns
) -> None:
    await fill(turns, pool)
    await turns.start("young", EngineRequest(JOB, order=30))
    await turns.start("old", EngineRequest(JOB, order=20))

    await turns.end("first 0")
    assert turns.served[-1] == ("old", FIRST)
    await turns.end("first 1")
    assert turns.served[-1] == ("young", FIRST)


async def test_a_turn_that_needs_a_newer_version_holds_up_nobody_behind_it(
    pool: EnginePool, turns: Turns
) -> None:
    pool.table_set([engine(1, version=3)])
    await turns.start("ahead", EngineRequest(JOB, order=1, min_version=4))
    await turns.start("behind", EngineRequest(JOB, order=2, min_version=3))
    assert turns.served == [("behind", FIRST)]

    pool.table_set([engine(1, version=4)])
    await finalize()

    assert turns.served[-1] == ("ahead", FIRST)


async def test_a_turn_that_goes_away_takes_no_room(pool: EnginePool, turns: Turns) -> None:
    await fill(turns, pool)
    await turns.start("gone", EngineRequest(JOB, order=20))
    await turns.start("next", EngineRequest(JOB, order=21))
    # It gets an engine and is cancelled at once, so the next turn gets the engine.
    turns._ends["first 0"].set()
    turns.tasks["first 0"].add_done_callback(lambda _: turns.tasks["gone"].cancel())
    await finalize()

    assert turns.tasks["gone"].cancelled()
    assert turns.served[-1] == ("next", FIRST)


async def test_a_session_stays_with_its_engine_and_leaves_one_that_failed(
    pool: EnginePool, turns: Turns
) -> None:
    pool.table_set([engine(1), engine(2)])
    await turns.start("a", EngineRequest(JOB, preferred=SECOND))
    await turns.start("b", EngineRequest(JOB, preferred=SECOND))
    pool.cool_down(engine(2))
    await turns.start("c", EngineRequest(JOB, preferred=SECOND))

    assert [key for _, key in turns.served] == [SECOND, SECOND, FIRST]


async def test_engines_of_other_jobs_are_out_of_reach_and_a_job_that_is_over_waits_no_more(
    pool: EnginePool, turns: Turns
) -> None:
    pool.table_set([engine(1, job=OTHER_JOB)])
    await turns.start("lonely", EngineRequest(JOB))
    assert turns.served == []

    pool.jobs_over = {JOB}
    pool.table_set([])
    await finalize()

    with pytest.raises(JobOver):
        await turns.tasks["lonely"]


async def test_the_queue_is_bounded(pool: EnginePool, turns: Turns) -> None:
    for number in range(10):
        await turns.start(str(number), EngineRequest(JOB))
    with pytest.raises(TooManyWaiting, match="10 turns are already waiting"):
        async with pool.acquire(EngineRequest(JOB)):
            pass
    for task in turns.tasks.values():
        task.cancel()


async def test_an_evaluation_waits_behind_training_but_not_for_ever(pool: EnginePool, turns: Turns) -> None:
    pool.table_set([engine(1)])
    for number in range(CAPACITY):
        await turns.start(f"first {number}", EngineRequest(JOB, Affinity().order))
    measuring = Affinity.of_evaluation(0, handicap=2)
    training = [Affinity() for _ in range(4)]
    for name, affinity in [
        ("evaluation", measuring),
        *((f"training {n}", a) for n, a in enumerate(training)),
    ]:
        await turns.start(name, EngineRequest(JOB, affinity.order, affinity.min_version))
    before = len(turns.served)

    for number in range(CAPACITY):
        await turns.end(f"first {number}")

    order = [name for name, _ in turns.served[before:]]
    assert order == ["training 0", "training 1", "evaluation", "training 2", "training 3"]


async def test_suspected_engine_gets_no_turn_until_it_is_trusted_again(
    pool: EnginePool, turns: Turns
) -> None:
    pool.table_set([engine(1)])
    pool.suspect(FIRST)
    await turns.start("held", EngineRequest(JOB))
    pool.table_set([engine(1, version=1)])  # new weights do not prove that the engine works
    await finalize()
    assert turns.served == []

    pool.trust(FIRST)
    await finalize()

    assert turns.served == [("held", FIRST)]


async def test_a_gateway_gets_its_share_of_an_engine_and_what_others_leave(
    pool: EnginePool, turns: Turns
) -> None:
    pool.table_set([engine(1)])
    pool.shares_set("a", {"a": {}, "b": {FIRST: 20}})
    for number in range(CAPACITY):
        await turns.start(str(number), EngineRequest(JOB))
    assert len(turns.served) == 1, "the other gateway wanted all"

    pool.shares_set("a", {"a": {}, "b": {FIRST: 20}})
    assert pool.demands() == {FIRST: CAPACITY}
    await finalize()
    assert len(turns.served) == CAPACITY // 2

    pool.shares_set("a", {"a": {}, "b": {}})
    await finalize()
    assert len(turns.served) == CAPACITY - 1

    pool.shares_set("a", {"a": {}})
    await finalize()
    assert len(turns.served) == CAPACITY, "alone it has the engine to itself"


async def test_an_engine_that_joins_is_shared_at_once(pool: EnginePool, turns: Turns) -> None:
    pool.shares_set("a", {"a": {}, "b": {FIRST: 20}})
    pool.table_set([engine(1)])
    for number in range(CAPACITY):
        await turns.start(str(number), EngineRequest(JOB))
    assert len(turns.served) == 1


async def test_the_most_turns_that_need_an_engine_in_the_last_two_periods_are_told(
    pool: EnginePool, turns: Turns
) -> None:
    pool.table_set([engine(1)])
    for number in range(CAPACITY + 2):
        await turns.start(str(number), EngineRequest(JOB))
    await turns.start("other", EngineRequest(OTHER_JOB))
    await turns.end("0")
    assert pool.turns.most_lately() == {JOB: NUM_SLOTS + 2, OTHER_JOB: 1}

    pool.turns.period_end()
    turns.tasks["other"].cancel()
    for number in range(1, 6):
        await turns.end(str(number))
    assert pool.turns.most_lately() == {JOB: NUM_SLOTS + 2, OTHER_JOB: 1}, (
        "a moment with few turns is no news"
    )
    pool.turns.period_end()
    assert pool.turns.most_lately() == {JOB: NUM_SLOTS + 1, OTHER_JOB: 1}
    pool.turns.period_end()
    assert pool.turns.most_lately() == {JOB: CAPACITY - 4}


async def test_turns_that_queue_at_an_engine_need_no_other_one(pool: EnginePool, turns: Turns) -> None:
    pool.table_set([engine(1)])
    for number in range(CAPACITY):
        await turns.start(str(number), EngineRequest(JOB))
    assert pool.turns.most_lately() == {JOB: NUM_SLOTS}
    await turns.start("replacement", EngineRequest(JOB))
    assert pool.turns.most_lately() == {JOB: NUM_SLOTS + 1}, "it waits"


async def test_nobody_counts_once_all_turns_are_over(pool: EnginePool, turns: Turns) -> None:
    pool.table_set([engine(1)])
    names = [str(number) for number in range(CAPACITY + 2)]
    for name in names:
        await turns.start(name, EngineRequest(JOB))
    turns.tasks[names[-1]].cancel()
    for name in names[:-1]:
        await turns.end(name)
    pool.jobs_over = {JOB}
    for _ in range(2):
        pool.turns.period_end()
    assert pool.turns.most_lately() == {}


class Counted(dict[UUID, object]):
    """Counts how many values were looked at."""

    num_looked_at = 0

    def values(self):  # type: ignore[no-untyped-def]
        for value in super().values():
            self.num_looked_at += 1
            yield value

    def items(self):  # type: ignore[no-untyped-def]
        for item in super().items():
            self.num_looked_at += 1
            yield item


async def test_fault_8_a_turn_does_not_look_at_the_engines_of_other_jobs(
    pool: EnginePool, turns: Turns
) -> None:
    others = [engine(100 + number, job=UUID(int=10_000 + number)) for number in range(1000)]
    pool.table_set([engine(1), *others])
    pool._entries = counted = Counted(pool._entries)  # type: ignore[assignment]

    for number in range(CAPACITY + 3):
        await turns.start(f"turn {number}", EngineRequest(JOB))
    await turns.end("turn 0")

    assert {key for _, key in turns.served} == {FIRST}
    assert len(turns.served) == CAPACITY + 1, "one that waited took the place of the one that ended"
    assert counted.num_looked_at == 0
    for task in turns.tasks.values():
        task.cancel()


async def test_engines_of_one_phase_are_chosen_suspected_and_cooled_down_one_by_one(
    pool: EnginePool, turns: Turns
) -> None:
    table = [engine(1), engine(1, replica=1)]
    pool.table_set(table)
    other = table[1].key
    for name in ("a", "b"):
        await turns.start(name, EngineRequest(JOB))
    assert {key for _, key in turns.served} == {FIRST, other}
    await turns.start("sticky", EngineRequest(JOB, preferred=other))
    assert turns.served[-1] == ("sticky", other)

    pool.suspect(other)
    await turns.start("away", EngineRequest(JOB, preferred=other))
    assert turns.served[-1] == ("away", FIRST)
    pool.trust(other)
    pool.cool_down(table[0])
    await turns.start("back", EngineRequest(JOB, preferred=FIRST))
    assert turns.served[-1] == ("back", other)
    assert pool.demands() == {FIRST: 2, other: 3}
    assert pool.slots_by_job()[JOB].num_engines == 2


async def test_an_engine_that_was_lost_and_started_again_has_its_room_and_its_fellow_keeps_its_turns(
    pool: EnginePool, turns: Turns
) -> None:
    lost, fellow = engine(1, replica=0), engine(1, replica=1)
    pool.table_set([lost, fellow])
    for number in range(2 * CAPACITY):
        await turns.start(str(number), EngineRequest(JOB))
    pool.table_set([fellow])
    await turns.start("held", EngineRequest(JOB))
    assert pool.num_held() == 1
    assert pool.demands() == {fellow.key: CAPACITY + 1}

    pool.table_set([engine(1, replica=0, start=1), fellow])
    await finalize()

    assert turns.served[-1] == ("held", lost.key)
    assert pool.demands() == {lost.key: 1, fellow.key: CAPACITY}, "turns of the lost one are not its own"


async def test_of_two_engines_of_a_phase_the_gateways_share_each_by_what_they_want_of_it(
    pool: EnginePool, turns: Turns
) -> None:
    pool.table_set([engine(1), engine(1, replica=1)])
    other = EngineKey(UUID(int=1), 1)
    pool.shares_set("a", {"a": {}, "b": {other: 20}})
    for number in range(CAPACITY + 2):
        await turns.start(str(number), EngineRequest(JOB))
    served = [key for _, key in turns.served]
    assert (served.count(FIRST), served.count(other)) == (CAPACITY // 2, 1), (
        "what nobody wants is lent equally"
    )

    pool.shares_set("a", {"a": {}, "b": {other: 20}})
    await finalize()
    served = [key for _, key in turns.served]
    assert (served.count(FIRST), served.count(other)) == (CAPACITY - 1, CAPACITY // 2), (
        "each by its own demands"
    )


def test_an_engine_is_named_by_its_phase_and_its_number_and_the_first_one_as_ever() -> None:
    for key in (FIRST, EngineKey(UUID(int=1), 7)):
        assert EngineKey.parse(str(key)) == key
    assert str(FIRST) == str(UUID(int=1))
