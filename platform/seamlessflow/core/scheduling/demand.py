"""How many machines a job could use at this moment, by role.

Takes a job and the machines with a live phase of it. Engines are wanted for the turns that run or wait, without limit
while nobody has counted them. Training wants all machines of the job's trainer, or none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.activity import is_running
from seamlessflow.core.scheduling.multiplexing import EMPTY_TURN_GRACE_S, batches_to_wait_for
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, PhaseView
from seamlessflow.core.types.tags import Role

UNLIMITED = 1_000_000


@dataclass(frozen=True, slots=True)
class Demand:
    rollout: int
    train: int
    rollout_after: int  # once the batch that is being trained now is published


def demand_of(job: JobView, held: Sequence[MachineView], *, is_gathering: bool) -> Demand:
    """Return what an admitted job could use. `held`: the machines with a live phase of it; `is_gathering`: whether
    machines already stand free or are leaving for its gang, which then does not wait for another batch."""
    return Demand(
        rollout=_rollout(job),
        train=job.num_train_machines if _is_training_due(job, held, is_gathering=is_gathering) else 0,
        rollout_after=max(_rollout(job), _next_batch(job)),
    )


def _rollout(job: JobView) -> int:
    if not job.has_rollout or (job.num_remaining_updates == 0 and not job.awaits_evaluation):
        return 0
    if job.engines_wanted is None:
        return UNLIMITED
    is_starting = job.state is not JobState.RUNNING  # it needs an engine to be up
    return max(job.engines_wanted, int(is_starting))


def _next_batch(job: JobView) -> int:
    if not job.has_rollout or job.num_remaining_updates <= 1:
        return 0
    return engines_for(job.groups_per_batch * job.group_size, job.slots_per_engine)


def engines_for(num_turns: int, slots_per_engine: int) -> int:
    """Return how many engines run that many turns at once."""
    return -(-num_turns // slots_per_engine)


def _is_training_due(job: JobView, held: Sequence[MachineView], *, is_gathering: bool) -> bool:
    if job.num_remaining_updates == 0:
        return False
    if not job.has_rollout:
        return True
    training = [m.phase for m in held if m.phase is not None and m.phase.role is Role.TRAIN]
    if any(not phase.is_leaving for phase in training):
        return job.num_due_batches > 0 or any(map(_may_still_find_a_batch(job), training))
    if not is_running(job, held):
        return False
    return job.num_due_batches >= (1 if is_gathering else batches_to_wait_for(job))


def _may_still_find_a_batch(job: JobView) -> Callable[[PhaseView], bool]:
    """Return whether a train phase is so new that its first batch may still come."""
    return lambda phase: (
        phase.state is not PhaseState.ACTIVE
        or (phase.age_s < EMPTY_TURN_GRACE_S and job.published_s >= phase.age_s)
    )
