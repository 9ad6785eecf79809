"""When a job trains and when its machines roll out again: the last of the scheduler's passes.

Takes the machines that a job should train on now (`members`) and those that train for it. A machine that also rolls out
trains in turns: it is taken once a full batch is ready, for one or two batches, and then returns. A machine that only
trains is leased for as long as no other job needs it. Jobs that train on several machines do so as a gang.
"""

from collections.abc import Sequence

from seamlessflow.core.scheduling.decisions import Decision, Lease, NextPhase
from seamlessflow.core.scheduling.passes.gangs import gang_gather
from seamlessflow.core.scheduling.passes.hand_overs import hand_over
from seamlessflow.core.scheduling.snapshot import JobView, MachineView
from seamlessflow.core.types.tags import Role

MAX_BATCHES_PER_TURN = 2
# Turns get longer once a hand-over and back takes more than this share of the time between two batches.
MAX_HAND_OVER_SHARE = 0.05
EMPTY_TURN_GRACE_S = 15.0  # a turn that finds no batch for this long gives the machine back
_OFFLINE = "trains on an offline dataset"
BACK_TO_ROLLOUT = NextPhase(role=Role.ROLLOUT, reason="its turn to train is over")


def training_decide(job: JobView, members: Sequence[MachineView]) -> tuple[Decision, ...]:
    """Decide how a job that trains nowhere begins on its machines: as many as train together."""
    reason, num_batches, then = _terms(job, members)
    if job.trains_in_gangs:
        return gang_gather(job, members, num_batches=num_batches, reason=reason, then=then)
    (machine,) = members
    phase = machine.phase
    if phase is None:
        return (
            Lease(
                machine_id=machine.id, machine=machine.name, job_id=job.id, role=Role.TRAIN,
                num_batches=num_batches, reason=reason, then=then,
            ),
        )  # fmt: skip
    if phase.is_leaving:
        return ()
    return (hand_over(job, Role.TRAIN, machine, phase, num_batches=num_batches, reason=reason),)


def _terms(job: JobView, members: Sequence[MachineView]) -> tuple[str, int | None, NextPhase | None]:
    if not job.has_rollout:
        return _OFFLINE, None, None
    if all(map(is_dedicated, members)):
        return "dedicated to training", None, None
    return batches_due(job), batches_of_turn(job), BACK_TO_ROLLOUT


def batches_to_wait_for(job: JobView) -> int:
    """Return the number of full batches to wait for before a turn: one, or two if a hand-over is expensive compared
    with a batch.

    It is two only if waiting delays nothing: half of the staleness bound leaves room for the second batch, enough
    groups for it are running (so generation does not wait for this turn), and the first batch has not waited long.
    """
    share = job.hand_over_s / job.batch_interval_s if job.batch_interval_s > 0 else 0.0
    num_wanted = min(
        MAX_BATCHES_PER_TURN, job.staleness_bound.num_batches_per_turn, job.num_remaining_updates
    )
    num_under_way = (
        job.num_ready_groups + job.num_open_groups + job.num_unpublished_batches * job.groups_per_batch
    )
    is_late = job.due_age_s > late_after_s(job)
    if share <= MAX_HAND_OVER_SHARE or is_late or num_under_way < num_wanted * job.groups_per_batch:
        return 1
    return num_wanted


def is_dedicated(machine: MachineView) -> bool:
    """Whether the machine only trains, so that a long train phase takes nothing away from generation."""
    return Role.ROLLOUT.value not in machine.tags


def late_after_s(job: JobView) -> float:
    """Return how long the first full batch may wait for a second one."""
    return MAX_BATCHES_PER_TURN * job.batch_interval_s


def only_trains(machine: MachineView) -> bool:
    return is_dedicated(machine) and Role.TRAIN.value in machine.tags


def batches_of_turn(job: JobView) -> int:
    """Return for how many batches a turn is leased that begins now."""
    return min(job.num_due_batches, MAX_BATCHES_PER_TURN)


def batches_due(job: JobView) -> str:
    return f"{job.num_due_batches} full {'batch is' if job.num_due_batches == 1 else 'batches are'} ready"
