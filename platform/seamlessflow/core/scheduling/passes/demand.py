"""How many machines a job could use at this moment, by role.

Takes a job and its live phases, each with its machine. Engines are wanted for the turns that run or wait, without limit
while they are not counted, and a machine with many devices runs several. Training wants as many machines as train
together at least, or as those that do now, or none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.activity import is_running
from seamlessflow.core.scheduling.passes.multiplexing import EMPTY_TURN_GRACE_S, batches_to_wait_for
from seamlessflow.core.scheduling.snapshot import JobView, LivePhase, PhaseView
from seamlessflow.core.types.tags import Role

UNLIMITED = 1_000_000
KEPT_SHARE = 0.5  # a machine of agents is kept while the others would be more than half full without it


@dataclass(frozen=True, slots=True)
class Demand:
    rollout: int
    train: int
    rollout_after: int  # once the batch that is being trained now is published


def demand_of(
    job: JobView, live: Sequence[LivePhase], *, is_gathering: bool, engines_each: int = 1
) -> Demand:
    """Return what an admitted job could use. `live`: its live phases; `is_gathering`: whether
    machines already stand free or are leaving for its gang, which then does not wait for another batch;
    `engines_each`: how many of its engines one machine runs."""
    rollout = _rollout(job, engines_each)
    num_training = sum(phase.role is Role.TRAIN for _, phase in live)
    is_due = _is_training_due(job, live, is_gathering=is_gathering)
    return Demand(
        rollout=rollout,
        train=max(job.num_train_machines, num_training) if is_due else 0,
        rollout_after=max(rollout, _next_batch(job, engines_each)),
    )


def _rollout(job: JobView, engines_each: int) -> int:
    if not job.has_rollout or (job.num_remaining_updates == 0 and not job.awaits_evaluation):
        return 0
    if job.engines_wanted is None:
        return UNLIMITED
    return max(_machines_for(job.engines_wanted, engines_each), int(_is_beginning(job)))


def _is_beginning(job: JobView) -> bool:
    """Whether the job needs an engine although no turn asks for one: to be up, and then until its agents have made its
    first group. Otherwise its first engine would be taken just before they ask for it."""
    if job.state is not JobState.RUNNING:
        return True
    return job.has_agents and not (job.num_ready_groups or job.num_unpublished_batches or job.published_batch)


def _next_batch(job: JobView, engines_each: int) -> int:
    if not job.has_rollout or job.num_remaining_updates <= 1:
        return 0
    return _machines_for(
        engines_for(job.groups_per_batch * job.group_size, job.slots_per_engine), engines_each
    )


def _machines_for(num_engines: int, engines_each: int) -> int:
    """Return how many machines run that many engines."""
    return -(-num_engines // engines_each)


def engines_for(num_turns: int, slots_per_engine: int) -> int:
    """Return how many engines run that many turns at once."""
    return -(-num_turns // slots_per_engine)


def is_demand_news(reported: int, wanted: int, num_engines: int) -> bool:
    """Whether to report at once that a job with `num_engines` engines wants `wanted`, and not `reported`.

    While it wants more engines than it has, how many more may be reported a little later, unless the number has
    doubled.
    """
    if min(reported, wanted) > num_engines:
        return wanted >= 2 * reported
    return reported != wanted


def agents_for(num_sessions: int, capacity: float) -> int:
    """Return how many machines agents could use: one more than are full with `capacity` sessions each."""
    return 1 + int(num_sessions / capacity)


def _is_training_due(job: JobView, live: Sequence[LivePhase], *, is_gathering: bool) -> bool:
    if job.num_remaining_updates == 0:
        return False
    if not job.has_rollout:
        return True
    training = [phase for _, phase in live if phase.role is Role.TRAIN]
    if any(not phase.is_leaving for phase in training):
        return job.num_due_batches > 0 or any(map(_may_still_find_a_batch(job), training))
    if not is_running(job, live):
        return False
    return job.num_due_batches >= (1 if is_gathering else batches_to_wait_for(job))


def _may_still_find_a_batch(job: JobView) -> Callable[[PhaseView], bool]:
    """Return whether a train phase is so new that its first batch may still come."""
    return lambda phase: (
        phase.state is not PhaseState.ACTIVE
        or (phase.age_s < EMPTY_TURN_GRACE_S and job.published_s >= phase.age_s)
    )
