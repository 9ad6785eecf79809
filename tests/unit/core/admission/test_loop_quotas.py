"""Jobs share the time of an event loop: each has its part, and more only while there is time to spare."""

from uuid import UUID

from seamlessflow.core.admission.loop_quotas import (
    ACTIVE_S,
    JOBS_FRACTION,
    REFUSED_FACTOR,
    SPARE_FRACTION,
    LoopQuotas,
)

GREEDY, MODEST = UUID(int=1), UUID(int=2)
TICK_S = 0.001


def used(
    quotas: LoopQuotas, *, seconds: float, modest_s: float, request_s: float = 0.003, is_refused: bool = False
) -> dict[UUID, float]:
    """Return which part of the time jobs use, if one asks without end and one uses `modest_s` of each second."""
    total = {GREEDY: 0.0, MODEST: 0.0}
    for tick in range(int(seconds / TICK_S)):
        now_s, left_s = 100 + tick * TICK_S, TICK_S
        if is_refused:
            quotas.refused(GREEDY)
        wants = modest_s * tick * TICK_S - total[MODEST]
        for job, wanted_s in ((MODEST, wants), (GREEDY, TICK_S)):
            while wanted_s > 0 and left_s > 0 and quotas.may_begin(job, now_s):
                request = quotas.begin(job)
                request.add(request_s)
                request.end()
                total[job] += request_s
                wanted_s, left_s = wanted_s - request_s, left_s - request_s
    return {job: use / seconds for job, use in total.items()}


def test_a_job_that_wants_less_than_its_part_gets_all_of_it_beside_one_that_asks_without_end() -> None:
    used_fraction = used(LoopQuotas(), seconds=4, modest_s=0.25)
    assert used_fraction[MODEST] > 0.24
    assert JOBS_FRACTION / 2 - 0.05 < used_fraction[GREEDY] < JOBS_FRACTION / 2 + 0.05


def test_a_job_gets_what_others_leave_but_the_loop_keeps_time_to_spare() -> None:
    used_fraction = used(LoopQuotas(), seconds=4, modest_s=0.02)
    assert SPARE_FRACTION - 0.05 < used_fraction[GREEDY] + used_fraction[MODEST] < SPARE_FRACTION + 0.05


def test_a_job_that_asks_for_more_than_its_bounds_has_a_smaller_part() -> None:
    used_fraction = used(LoopQuotas(), seconds=4, modest_s=0.34, is_refused=True)
    assert used_fraction[MODEST] > 0.33
    assert used_fraction[GREEDY] < JOBS_FRACTION / 2 * REFUSED_FACTOR + 0.05


def test_a_job_that_is_alone_is_never_refused() -> None:
    quotas = LoopQuotas()
    for _ in range(1000):
        assert quotas.may_begin(GREEDY, 100.0)
        quotas.begin(GREEDY).add(1.0)


def test_a_job_does_not_pay_long_for_what_it_used_alone() -> None:
    quotas = LoopQuotas()
    assert quotas.may_begin(GREEDY, 100.0)
    quotas.begin(GREEDY).add(1000.0)
    assert quotas.may_begin(MODEST, 100.0)
    assert not quotas.may_begin(GREEDY, 100.001)
    assert quotas.may_begin(GREEDY, 100.5)


def test_a_job_counts_no_more_once_it_asks_no_more() -> None:
    quotas = LoopQuotas()
    quotas.may_begin(MODEST, 100.0)
    for now_s in (100.001, 100.002 + ACTIVE_S):
        quotas.may_begin(GREEDY, now_s)
        quotas.begin(GREEDY).add(1000.0)
        assert quotas.may_begin(GREEDY, now_s) is (now_s > 101)
