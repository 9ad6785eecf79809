"""How long a turn has waited for engines, the header of its answer, and when a wait ends without one."""

from uuid import UUID

import pytest

from seamlessflow.data_plane.routes.turns import waited_header
from seamlessflow.data_plane.turns.engines.pool import EnginePool, EngineRequest
from seamlessflow.data_plane.turns.engines.turn_wait import NoEngine, TurnWait

JOB = UUID(int=1)


def test_answers_of_one_turn_that_wait_together_count_once() -> None:
    begun: list[bool] = []
    wait = TurnWait(on_begin=lambda: begun.append(True))
    wait.begin(10.0)
    wait.begin(11.0)
    wait.end(12.0)
    assert (wait.is_waiting, wait.waited_s(13.0)) == (True, 3.0)
    wait.end(13.0)
    wait.begin(20.0)
    wait.end(21.0)
    assert (wait.is_waiting, wait.waited_s(99.0), len(begun)) == (False, 4.0, 2)


def test_only_an_answer_that_waited_has_the_header() -> None:
    assert waited_header(0.05) == []
    assert waited_header(7.25) == [(b"x-seamlessflow-waited-s", b"7.2")]


@pytest.mark.parametrize(
    "reasons,words", [({JOB: "no machine is free"}, "no machine is free"), ({}, "no machine rolls out")]
)
async def test_a_wait_without_an_engine_ends_with_the_words_of_the_queue(
    reasons: dict[UUID, str], words: str
) -> None:
    pool = EnginePool(lambda: 0.0, max_held=1)
    pool.reasons = reasons
    for _ in range(2):  # the first leaves nothing behind
        with pytest.raises(NoEngine, match=words):
            async with pool.acquire(EngineRequest(JOB), wait=TurnWait(patience_s=0.01)):
                pass
    assert pool.num_held() == 0
