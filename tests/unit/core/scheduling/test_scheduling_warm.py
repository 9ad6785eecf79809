"""Whose processes stay on a machine of many jobs, and that no trainer loses progress by being stopped."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.scheduling.warm import MAX_WARM_JOBS, WarmCandidate, leaves_checkpoint, warm_choose

NUM_JOBS = 6
JOBS = tuple(WarmCandidate(job_id=UUID(int=n), order=float(n)) for n in range(NUM_JOBS))
TRAINED = tuple(replace(job, has_trainer_state=True, has_trained=True) for job in JOBS)


def chosen(*candidates: WarmCandidate) -> list[int]:
    return [job_id.int for job_id in warm_choose(candidates)]


def test_the_oldest_jobs_are_kept_on_a_machine_that_nobody_has_used() -> None:
    assert chosen(*reversed(JOBS)) == [0, 1, 2, 3]


def test_who_works_here_and_who_follows_comes_before_trainers_that_wait() -> None:
    at_work, following = replace(JOBS[5], is_at_work=True), replace(JOBS[4], is_next=True)
    assert chosen(*TRAINED[:4], following, at_work) == [5, 4, 0, 1]


def test_fault_5_a_trainer_stays_where_its_state_is_before_older_jobs_that_have_nothing_here() -> None:
    assert chosen(*JOBS[:4], *TRAINED[4:]) == [4, 5, 0, 1]


def test_a_trainer_saves_before_it_waits_unless_it_is_sure_to_stay() -> None:
    assert [leaves_checkpoint(TRAINED, job.job_id) for job in TRAINED] == [
        False,
        False,
        True,
        True,
        True,
        True,
    ]
    assert not any(leaves_checkpoint(TRAINED[:MAX_WARM_JOBS], job.job_id) for job in TRAINED[:MAX_WARM_JOBS])


def test_trainers_at_home_elsewhere_push_nobody_out() -> None:
    elsewhere = tuple(replace(job, has_trained=True) for job in JOBS[:5])
    assert not leaves_checkpoint((*elsewhere, TRAINED[5]), TRAINED[5].job_id)


def test_a_trainer_whose_process_may_not_stay_at_all_saves() -> None:
    assert leaves_checkpoint(TRAINED[:2], TRAINED[2].job_id)


@given(st.data())
def test_no_trainer_with_unsaved_progress_is_ever_stopped(data: st.DataObject) -> None:
    """Six jobs train and roll out in any order on one machine, which is warm for four."""
    jobs = {job.job_id: job for job in JOBS}
    unsaved: set[UUID] = set()
    ids = st.sampled_from(sorted(jobs))
    for _ in range(data.draw(st.integers(1, 25))):
        worker, follower, trains = data.draw(ids), data.draw(ids), data.draw(st.booleans())
        if trains:
            jobs[worker] = replace(jobs[worker], has_trainer_state=True, has_trained=True)
        seen = [
            replace(one, is_at_work=one.job_id == worker, is_next=one.job_id == follower)
            for one in jobs.values()
        ]
        assert unsaved <= set(warm_choose(seen))
        if trains and leaves_checkpoint(seen, worker):
            unsaved.discard(worker)
        elif trains:
            unsaved.add(worker)
        idle = list(jobs.values())  # between two phases
        assert unsaved <= set(warm_choose(idle))
