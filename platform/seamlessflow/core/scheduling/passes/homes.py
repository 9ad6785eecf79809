"""Where jobs are at work now, as classes of machines, so that they are given machines there.

Machines that are leaving are no job's home.
"""

from collections import defaultdict
from uuid import UUID

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.passes.fleet import Fleet
from seamlessflow.core.scheduling.snapshot import JobView, Owner, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role


class Homes:
    def __init__(self, fleet: Fleet, snapshot: Snapshot) -> None:
        self._class_of = fleet.class_of
        self._classes: dict[Owner, list[int]] = defaultdict(list)
        self._training: set[UUID] = set()
        for machine in snapshot.machines:
            phase = machine.phase
            if phase is None or phase.is_leaving:
                continue
            number = fleet.class_of.get(machine.id)
            if number is None:
                continue
            self._classes[phase.job_id, phase.role].append(number)
            if phase.role is Role.TRAIN and not _lets_others_in(phase, snapshot.job(phase.job_id)):
                self._training.add(phase.job_id)

    def of(self, owner: Owner) -> list[int]:
        """Return the class of each machine that works for the owner."""
        return self._classes.get(owner, [])

    def of_trainer(self, job: JobView) -> list[int]:
        """Return the classes where the job trains, then those of the machines that have its trainer's state."""
        known = sorted(self._class_of[machine] for machine in job.trainer_state if machine in self._class_of)
        return [*self.of((job.id, Role.TRAIN)), *known]

    def is_training(self, job: JobView) -> bool:
        """Whether a step of the job runs, or its turn has just begun."""
        return job.id in self._training


def _lets_others_in(phase: PhaseView, job: JobView | None) -> bool:
    """Whether a trainer that keeps its machine for long has published a batch there, so that others may have a turn."""
    if job is None or phase.num_batches is not None or phase.state is not PhaseState.ACTIVE:
        return False
    return job.published_s < phase.age_s
