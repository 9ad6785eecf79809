"""Jobs share the time of an event loop: each has its part, and more only while there is time to spare."""

from uuid import UUID

from seamlessflow.core.admission.loop_parts import ACTIVE_S, JOBS_PART, REFUSED_PART, SPARE_PART, LoopParts

GREEDY, MODEST = UUID(int=1), UUID(int=2)
TICK_S = 0.001


def used(
    parts: LoopParts, *, seconds: float, modest_s: float, request_s: float = 0.003, is_refused: bool = False
) -> dict[UUID, float]:
    """Return which part of the time jobs use, if one asks without end and one uses `modest_s` of each second."""
    total = {GREEDY: 0.0, MODEST: 0.0}
    for tick in range(int(seconds / TICK_S)):
        now_s, left_s = 100 + tick * TICK_S, TICK_S
        if is_refused:
            parts.refused(GREEDY)
        wants = modest_s * tick * TICK_S - total[MODEST]
        for job, wanted_s in ((MODEST, wants), (GREEDY, TICK_S)):
            while wanted_s > 0 and left_s > 0 and parts.may_begin(job, now_s):
                request = parts.begin(job)
                request.add(request_s)
                request.end()
                total[job] += request_s
                wanted_s, left_s = wanted_s - request_s, left_s - request_s
    return {job: use / seconds for job, use in total.items()}


def test_a_job_that_wants_less_than_its_part_gets_all_of_it_beside_one_that_asks_without_end() -> None:
    share = used(LoopParts(), seconds=4, modest_s=0.25)
    assert share[MODEST] > 0.24
    assert JOBS_PART / 2 - 0.05 < share[GREEDY] < JOBS_PART / 2 + 0.05


def test_a_job_gets_what_others_leave_but_the_loop_keeps_time_to_spare() -> None:
    share = used(LoopParts(), seconds=4, modest_s=0.02)
    assert SPARE_PART - 0.05 < share[GREEDY] + share[MODEST] < SPARE_PART + 0.05


def test_a_job_that_asks_for_more_than_its_bounds_has_a_smaller_part() -> None:
    share = used(LoopParts(), seconds=4, modest_s=0.34, is_refused=True)
    assert share[MODEST] > 0.33
    assert share[GREEDY] < JOBS_PART / 2 * REFUSED_PART + 0.05


def test_a_job_that_is_alone_is_never_refused() -> None:
    parts = LoopParts()
    for _ in range(1000):
        assert parts.may_begin(GREEDY, 100.0)
        parts.begin(GREEDY).add(1.0)


def test_a_job_does_not_pay_long_for_what_it_used_alone() -> None:
    parts = LoopParts()
    assert parts.may_begin(GREEDY, 100.0)
    parts.begin(GREEDY).add(1000.0)
    assert parts.may_begin(MODEST, 100.0)
    assert not parts.may_begin(GREEDY, 100.001)
    assert parts.may_begin(GREEDY, 100.5)


def test_a_job_counts_no_more_once_it_asks_no_more() -> None:
    parts = LoopParts()
    parts.may_begin(MODEST, 100.0)
    for now_s in (100.001, 100.002 + ACTIVE_S):
        parts.may_begin(GREEDY, now_s)
        parts.begin(GREEDY).add(1000.0)
        assert parts.may_begin(GREEDY, now_s) is (now_s > 101)
