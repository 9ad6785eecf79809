"""Training of one job: a long phase on dedicated machines, or turns on machines that also roll out.

A machine must return to training as soon as a full batch is ready; until then it is lent to
rollout. A machine on which training is due is never leased for rollout.
"""

from dataclasses import dataclass

from seamlessflow.core.scheduling.decisions import Decision, DrainPhase, Lease, NextPhase
from seamlessflow.core.scheduling.gangs import gang_gather, is_gathering
from seamlessflow.core.scheduling.layout import Layout
from seamlessflow.core.scheduling.scores import is_dedicated
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView
from seamlessflow.core.types.tags import Role

MAX_BATCHES_PER_TURN = 2
# Turns get longer once a hand-over and back takes more than this share of the time between two batches.
MAX_HAND_OVER_SHARE = 0.05
EMPTY_TURN_GRACE_S = 15.0  # a turn that finds no batch for this long gives the machine back
_OFFLINE = "trains on an offline dataset"
BACK_TO_ROLLOUT = NextPhase(role=Role.ROLLOUT, reason="its turn to train is over")


@dataclass(frozen=True, slots=True)
class TrainTurn:
    """Decisions about training, and the machines that rollout must leave alone."""

    decisions: tuple[Decision, ...] = ()
    reserved: tuple[MachineView, ...] = ()


def train_turn(
    job: JobView, layout: Layout, live_train: tuple[MachineView, ...], *, is_running: bool
) -> TrainTurn:
    """Decide what training needs now. `live_train`: all machines with a live train phase of the job."""
    if job.trains_in_gangs:
        return _gang_turn(job, layout, live_train, is_running=is_running)
    if live_train:
        return _during(job, live_train[0])
    machine = layout.train
    if machine is None or job.num_remaining_updates == 0:
        return TrainTurn()
    if not job.has_rollout:
        return _dedicated(job, machine, reason=_OFFLINE)
    if is_dedicated(machine):
        return _dedicated(job, machine) if is_running else TrainTurn(reserved=(machine,))
    if job.num_due_batches < batches_to_wait_for(job):
        return TrainTurn()
    return _take_over(job, machine)


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


def late_after_s(job: JobView) -> float:
    """Return how long the first full batch may wait for a second one."""
    return MAX_BATCHES_PER_TURN * job.batch_interval_s


def _gang_turn(
    job: JobView, layout: Layout, live_train: tuple[MachineView, ...], *, is_running: bool
) -> TrainTurn:
    if live_train:  # the rule for one machine applies to each member, the leader included
        turns = [_during(job, machine) for machine in live_train]
        is_long = not job.has_rollout or all(map(is_dedicated, live_train))
        drains = () if is_long else tuple(decision for turn in turns for decision in turn.decisions)
        is_broken = any(m.phase and m.phase.gang and m.phase.gang.failure for m in live_train)
        again = layout.trainers if is_broken and job.num_due_batches else ()
        return TrainTurn(drains, (*live_train, *again))
    members = layout.trainers
    if len(members) < job.num_train_machines or job.num_remaining_updates == 0:
        return TrainTurn()
    if not job.has_rollout or all(map(is_dedicated, members)):
        reason = "dedicated to training" if job.has_rollout else _OFFLINE
        leases = gang_gather(job, members, num_batches=None, reason=reason, then=None)
        return TrainTurn(leases if is_running or not job.has_rollout else (), members)
    num_wanted = 1 if is_gathering(members) else batches_to_wait_for(job)
    if job.num_due_batches < num_wanted:
        return TrainTurn()
    num_batches = min(job.num_due_batches, MAX_BATCHES_PER_TURN)
    decisions = gang_gather(job, members, num_batches=num_batches, reason=_due(job), then=BACK_TO_ROLLOUT)
    return TrainTurn(tuple(decisions), members)


def _due(job: JobView) -> str:
    return f"{job.num_due_batches} full {'batch is' if job.num_due_batches == 1 else 'batches are'} ready"


def _during(job: JobView, machine: MachineView) -> TrainTurn:
    phase = machine.phase
    if phase is None or phase.is_leaving or is_dedicated(machine) or not job.has_rollout:
        return TrainTurn(reserved=(machine,))
    if job.num_due_batches or phase.age_s < EMPTY_TURN_GRACE_S:
        return TrainTurn(reserved=(machine,))
    reason = "no full batch is left to train; back to rollout"
    drain = DrainPhase(phase_id=phase.id, machine=machine.name, reason=reason, then=BACK_TO_ROLLOUT)
    return TrainTurn((drain,), (machine,))


def _dedicated(job: JobView, machine: MachineView, *, reason: str = "dedicated to training") -> TrainTurn:
    if machine.phase is not None:
        return TrainTurn(reserved=(machine,))
    lease = Lease(machine_id=machine.id, machine=machine.name, job_id=job.id, role=Role.TRAIN, reason=reason)
    return TrainTurn((lease,), (machine,))


def _take_over(job: JobView, machine: MachineView) -> TrainTurn:
    num_batches = min(job.num_due_batches, MAX_BATCHES_PER_TURN)
    reason = _due(job)
    phase: PhaseView | None = machine.phase
    if phase is None:
        lease = Lease(
            machine_id=machine.id, machine=machine.name, job_id=job.id, role=Role.TRAIN, num_batches=num_batches,
            reason=reason, then=BACK_TO_ROLLOUT,
        )  # fmt: skip
        return TrainTurn((lease,), (machine,))
    if phase.is_leaving:
        return TrainTurn(reserved=(machine,))
    drain = DrainPhase(
        phase_id=phase.id,
        machine=machine.name,
        reason=f"{reason}: the machine switches to training",
        then=NextPhase(role=Role.TRAIN, num_batches=num_batches, reason=reason),
    )
    return TrainTurn((drain,), (machine,))
