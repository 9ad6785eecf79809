"""The queue says what each waiting job lacks, who holds it, until when, and only offers what the scheduler would do."""

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

from hypothesis import given

from seamlessflow.core.algorithms.staleness_bound import StalenessBound
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.decisions import MoveJob
from seamlessflow.core.scheduling.explain.edits import snapshot_edited
from seamlessflow.core.scheduling.explain.queue import Lack, Queue, QueueEntry, Until
from seamlessflow.core.scheduling.explain.queue_text import (
    holder_sentence,
    lack_sentence,
    shortage_sentence,
    unblock_sentence,
)
from seamlessflow.core.scheduling.explain.unblocks import (
    MAX_TRIALS,
    OPEN_KINDS,
    Trials,
    Unblock,
    UnblockKind,
    unblocks,
)
from seamlessflow.core.scheduling.job_ends import ending_of
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView, Snapshot
from seamlessflow.core.types.desired_state import MachineEdit
from seamlessflow.core.types.tags import Role
from tests.fixtures.snapshots import snapshots

A, B, C = (UUID(int=number) for number in (1, 2, 3))
BOTH = ("rollout", "train")
ALPHA = JobView(
    id=A, name="alpha", order=1, state=JobState.RUNNING, num_updates=10, engines_wanted=1,
    has_external_agents=True, admitted_s=540.0, published_s=30.0,
)  # fmt: skip
BETA = replace(ALPHA, id=B, name="beta", order=2, state=JobState.QUEUED, waiting_s=40.0, admitted_s=0.0)


def machine(name: str, *tags: str, job: UUID | None = None, role: Role = Role.ROLLOUT) -> MachineView:
    machine_id = UUID(bytes=name.encode().ljust(16, b"\0"))
    phase = PhaseView(
        id=UUID(int=machine_id.int + 1), job_id=job, role=role, state=PhaseState.ACTIVE, fence=1, age_s=500.0
    ) if job is not None else None  # fmt: skip
    return MachineView(id=machine_id, name=name, tags=frozenset(tags), phase=phase)


def offers(snapshot: Snapshot, job: JobView, **options: frozenset[UnblockKind]) -> tuple[Unblock, ...]:
    queue = Queue(snapshot)
    return unblocks(queue, entry_of(queue, job), Trials(snapshot), **options)


def entry_of(queue: Queue, job: JobView) -> QueueEntry:
    return next(entry for entry in queue.entries if entry.job.id == job.id)


def said(snapshot: Snapshot, job: JobView) -> list[str]:
    queue = Queue(snapshot)
    entry = entry_of(queue, job)
    lines = [lack_sentence(entry)]
    for shortage in queue.shortages(entry):
        lines += [shortage_sentence(shortage), *(holder_sentence(one, name) for one in shortage.holders)]
    return lines + [unblock_sentence(one, entry, name) for one in unblocks(queue, entry, Trials(snapshot))]


def name(job: JobView) -> str:
    return f'the job "{job.name}"'


def test_a_job_without_a_machine_to_train_is_told_who_holds_it_until_when_and_what_helps() -> None:
    """Two machines, of which one may train: the second job has no engine beside the first one's."""
    machines = (machine("m1", *BOTH, job=A), machine("m2", "train"))
    assert said(Snapshot(machines, (ALPHA, BETA)), BETA) == [
        "It begins as soon as it has a machine for everything that it needs.",
        "It lacks 1 machine to roll out, with the tag rollout.",
        'm1 works for the job "alpha" until its quantum ends in 6 min; it then gives way right after it publishes.',
        "Give m2 the tag rollout: the job would begin at once, and no other job stops for it.",
        "Wait: its turn comes in 6 min at the earliest and in 11 min at the latest.",
        'Raise its priority from 0 to 1: the job would begin at once, and the job "alpha" stops for it.',
    ]


def test_the_wait_is_the_cheapest_offer_if_it_is_short() -> None:
    machines = (machine("m1", *BOTH, job=A), machine("m2", "train"))

    def kinds(admitted_s: float) -> list[UnblockKind]:
        alpha = replace(ALPHA, admitted_s=admitted_s)
        return [one.kind for one in offers(Snapshot(machines, (alpha, BETA)), BETA)]

    assert kinds(880.0) == [UnblockKind.RETAG, UnblockKind.WAIT, UnblockKind.PRIORITY]
    assert kinds(1150.0) == [UnblockKind.WAIT, UnblockKind.RETAG, UnblockKind.PRIORITY]


def test_no_offer_is_made_that_would_not_help() -> None:
    """The only machine may do everything; another tag gives no second one."""
    snapshot = Snapshot((machine("m1", *BOTH, "agent", job=A),), (replace(ALPHA, priority=100), BETA))
    assert [(one.kind, one.at_most_s) for one in offers(snapshot, BETA)] == [(UnblockKind.WAIT, None)]


def test_a_job_that_no_machine_fits_is_told_so_and_is_not_told_to_wait() -> None:
    snapshot = Snapshot((machine("m1", "train"), machine("m2", "agent")), (BETA,))
    lines = said(snapshot, BETA)
    assert lines[1] == "It lacks 1 machine to roll out, with the tag rollout: no usable machine has them."
    assert not any(line.startswith("Wait") for line in lines)
    assert "Give m1 the tag rollout: the job would begin at once, and no other job stops for it." in lines


def test_machines_that_would_fit_but_cannot_be_used_are_named_with_the_reason() -> None:
    cordoned = replace(machine("m1", *BOTH), is_cordoned=True)
    (shortage, _) = Queue(Snapshot((cordoned,), (BETA,))).shortages(QueueEntry(BETA, Lack.FLOOR, 1))
    assert [(one.until, one.reason) for one in shortage.holders] == [(Until.UNUSABLE, "m1 is cordoned")]


def test_a_project_at_its_quota_is_offered_the_quota_that_suffices() -> None:
    alpha, beta = (replace(job, project_quota=1) for job in (ALPHA, BETA))
    snapshot = Snapshot((machine("m1", *BOTH, job=A), machine("m2", *BOTH)), (alpha, beta))
    assert entry_of(Queue(snapshot), beta).lack is Lack.QUOTA
    kinds = [(one.kind, one.value) for one in offers(snapshot, beta)]
    assert kinds == [(UnblockKind.QUOTA, 2), (UnblockKind.WAIT, None)]


def test_a_pool_is_offered_to_operators_only() -> None:
    elsewhere = replace(machine("m2", *BOTH), pool="lab")
    snapshot = Snapshot((machine("m1", *BOTH, job=A), elsewhere), (ALPHA, BETA))
    grants = [one for one in offers(snapshot, BETA) if one.kind is UnblockKind.GRANT]
    assert [one.pool for one in grants] == ["lab"]
    assert all(one.pool == "" for one in offers(snapshot, BETA, kinds=OPEN_KINDS))
    (shortage,) = Queue(snapshot).shortages(entry_of(Queue(snapshot), BETA))
    assert [one.machine.name for one in shortage.holders] == ["m1"], "other pools' machines never appear"


def test_a_job_at_work_that_could_use_more_sees_whose_share_it_is() -> None:
    machines = tuple(machine(f"m{n}", *BOTH, job=A if n < 2 else B) for n in range(4))
    alpha = replace(ALPHA, engines_wanted=4, staleness_bound=StalenessBound(3))
    beta = replace(alpha, id=B, name="beta", order=2)
    queue = Queue(Snapshot(machines, (alpha, beta)))
    assert [(entry.job.name, entry.lack, entry.place) for entry in queue.entries] == [
        ("alpha", Lack.ENGINES, None),
        ("beta", Lack.ENGINES, None),
    ]
    (shortage,) = queue.shortages(queue.entries[0])
    assert shortage.num_machines == 2
    said = shortage_sentence(shortage)
    assert said == "It could use more machines to roll out, with the tag rollout.", "nothing is missing"
    assert {(one.machine.name, one.until) for one in shortage.holders} == {
        ("m2", Until.SHARE),
        ("m3", Until.SHARE),
    }


def test_a_job_whose_batch_is_ready_waits_for_the_step_of_another() -> None:
    machines = (machine("m1", "rollout", job=B), machine("m2", "rollout", job=A),
                machine("m3", "train", job=A, role=Role.TRAIN))  # fmt: skip
    alpha = replace(ALPHA, num_ready_groups=1, batch_interval_s=12.0, published_s=600.0)
    beta = replace(BETA, state=JobState.RUNNING, num_ready_groups=1, due_age_s=5.0)
    queue = Queue(Snapshot(machines, (alpha, beta)))
    (entry,) = queue.entries
    ((holder,),) = (one.holders for one in queue.shortages(entry))
    assert (entry.job.name, entry.lack) == ("beta", Lack.TURN)
    assert holder_sentence(holder, name) == (
        'm3 works for the job "alpha" until its step ends; it publishes about every 12 s.'
    )


def test_waiting_jobs_are_listed_in_the_order_in_which_they_are_served() -> None:
    late = replace(BETA, id=C, name="gamma", order=3, waiting_s=10.0, priority=0)
    queue = Queue(Snapshot((machine("m1", *BOTH, job=A),), (late, ALPHA, BETA)))
    assert [(entry.job.name, entry.place) for entry in queue.entries] == [("beta", 1), ("gamma", 2)]


def test_the_number_of_trials_is_bounded_and_smaller_for_a_large_fleet() -> None:
    def num_taken(num_machines: int) -> int:
        trials = Trials(Snapshot(tuple(machine(f"m{n}") for n in range(num_machines)), ()))
        return next(n for n in range(1000) if not trials.take())

    assert num_taken(10) == MAX_TRIALS
    assert num_taken(10_000) == 9


def edited(snapshot: Snapshot, job: JobView, offer: Unblock) -> Iterator[Snapshot]:
    """Yield the snapshot after what is offered, written anew here."""
    fellows = {one.id for one in snapshot.jobs if one.project_id == job.project_id}

    def with_jobs(ids: set[UUID], **changes: object) -> Snapshot:
        jobs = tuple(replace(one, **changes) if one.id in ids else one for one in snapshot.jobs)  # type: ignore[arg-type]
        return replace(snapshot, jobs=jobs)

    match offer.kind:
        case UnblockKind.RETAG:
            assert offer.machine is not None
            tags = offer.machine.tags | set(offer.tags)
            yield snapshot_edited(snapshot, {offer.machine.id: MachineEdit(tags=tags)})
        case UnblockKind.PRIORITY:
            yield with_jobs({job.id}, priority=offer.value)
        case UnblockKind.QUOTA:
            yield with_jobs(fellows, project_quota=offer.value)
        case UnblockKind.GRANT:
            yield with_jobs(fellows, pools=job.pools | {offer.pool})


@given(snapshots())
def test_every_offered_edit_lets_the_next_cycle_begin_the_job(snapshot: Snapshot) -> None:
    queue = Queue(snapshot)
    waiting = [one for one in queue.entries if one.job.state is JobState.QUEUED]
    for entry in waiting:
        for offer in unblocks(queue, entry, Trials(snapshot)):
            for after in edited(snapshot, entry.job, offer):
                moves = [one for one in decide(after).decisions if isinstance(one, MoveJob)]
                assert (entry.job.id, JobState.STARTING) in {(one.job_id, one.to_state) for one in moves}


@given(snapshots())
def test_every_job_that_the_scheduler_leaves_in_the_queue_has_an_entry_that_says_something(
    snapshot: Snapshot,
) -> None:
    queue = Queue(snapshot)
    waiting = {entry.job.id for entry in queue.entries if entry.place is not None}
    starts = {one.job_id for one in decide(snapshot).decisions if isinstance(one, MoveJob)}
    queued = {job.id for job in snapshot.jobs if job.state is JobState.QUEUED and ending_of(job) is None}
    assert queued - starts <= waiting
    for entry in queue.entries:
        assert lack_sentence(entry)
        assert all(shortage_sentence(one) for one in queue.shortages(entry))
