"""The evidence about machines and jobs: failures lately, and work now.

Takes a snapshot. Judged failures, and those on machines that are found to be to blame, prove nothing about a job,
except that it has tried. Failures before a publication, or before a person resumed the job, do not count against it.
"""

from collections import defaultdict
from collections.abc import Collection
from uuid import UUID

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.snapshot import FailureView, MachineView, Owner, PhaseView, Snapshot
from seamlessflow.core.types.tags import Role

PROVEN_S = 30.0  # a phase that is active for as long does useful work
REMEMBERED_S = 3600.0  # older failures say nothing
AVOIDED_S = 30.0  # how long a job stays away from a machine after its first failure there; then twice as long
LONGEST_S = 1800.0
RETRY_S = 10.0  # how long a job waits after its second failure in a row; then twice as long
LONGEST_RETRY_S = 300.0
MAX_MACHINES = 3  # a job that fails on so many machines, which fail no other job, is to blame


class Evidence:
    """The failures that are not judged. `of_machine`: those since the machine last did good work; `of_owner`: those
    of a job in a role since it last did; `tries_of`: the same with those that are judged."""

    def __init__(self, snapshot: Snapshot, innocent: Collection[UUID] = ()) -> None:
        """`innocent`: machines whose failures are judged."""
        self._snapshot = snapshot
        self._machines = {machine.id: machine for machine in snapshot.machines} if snapshot.failures else {}
        self._lately: dict[Owner, list[FailureView]] = defaultdict(list)
        self.of_machine: dict[UUID, list[FailureView]] = defaultdict(list)
        self.of_owner: dict[Owner, list[FailureView]] = defaultdict(list)
        self.tries_of: dict[Owner, list[FailureView]] = defaultdict(list)
        self._of_pair: dict[tuple[UUID, Owner], list[FailureView]] = defaultdict(list)
        self._working: dict[Owner, int] = {}
        for failure in snapshot.failures:
            machine, job = self._machines.get(failure.machine_id), snapshot.job(failure.job_id)
            if machine is None or job is None:
                continue
            self._lately[failure.owner].append(failure)
            is_held_against = failure.age_s < min(job.published_s, job.resumed_s)
            if is_held_against:
                self.tries_of[failure.owner].append(failure)
            if failure.fence <= machine.judged_fence or machine.id in innocent:
                continue
            self._of_pair[machine.id, failure.owner].append(failure)
            if not failure.machine_works and not _works_since(machine, failure):
                self.of_machine[machine.id].append(failure)
            if is_held_against:
                self.of_owner[failure.owner].append(failure)

    def without(self, guilty: Collection[UUID]) -> "Evidence":
        return Evidence(self._snapshot, guilty) if guilty else self

    def works_elsewhere(self, failure: FailureView) -> bool:
        job = self._snapshot.job(failure.job_id)
        assert job is not None
        return failure.job_works or job.published_s < failure.age_s or self.works(failure.owner)

    def is_up_elsewhere(self, failure: FailureView) -> bool:
        """Whether the job has come up in the role on another machine, although it may not have worked there yet."""
        return any(
            machine.id != failure.machine_id
            and phase.role is failure.role
            and phase.state is PhaseState.ACTIVE
            for machine, phase in self._snapshot.live_phases(failure.job_id)
        )

    def works(self, owner: Owner) -> bool:
        """Whether the job does the role's work on some machine now."""
        return self._num_working(owner) > 0

    def _num_working(self, owner: Owner) -> int:
        if owner not in self._working:
            live = self._snapshot.live_phases(owner[0])
            self._working[owner] = sum(_is_work_of(phase, owner) for _, phase in live)
        return self._working[owner]

    def is_suspect(self, owner: Owner) -> bool:
        """Whether the job fails on MAX_MACHINES or more, on more than it works on, and none of them fails others."""
        machines = self.machines_of(owner)
        return (
            len(machines) >= MAX_MACHINES
            and len(machines) > self._num_working(owner)
            and not any(self._fails_others(machine, owner) for machine in machines)
        )

    def machines_of(self, owner: Owner) -> list[UUID]:
        """Return the machines where the job failed in the role, the newest last."""
        failures = sorted(self.of_owner.get(owner, ()), key=lambda one: -one.age_s)
        return list(dict.fromkeys(failure.machine_id for failure in failures))

    def name_of(self, machine_id: UUID) -> str:
        return self._machines[machine_id].name

    def _fails_others(self, machine: UUID, owner: Owner) -> bool:
        return any(failure.job_id != owner[0] for failure in self.of_machine.get(machine, ()))

    def fails_only_here(self, failure: FailureView) -> bool:
        """Whether the job failed in the role on no other machine lately, judged or not."""
        return all(one.machine_id == failure.machine_id for one in self._lately[failure.owner])

    def avoided(self) -> dict[UUID, frozenset[Owner]]:
        avoided: dict[UUID, set[Owner]] = defaultdict(set)
        for (machine, owner), failures in self._of_pair.items():
            newest_s = min(failure.age_s for failure in failures)
            phase = self._machines[machine].phase_of(*owner)
            is_there = phase is not None and not phase.is_leaving
            if newest_s <= doubled(AVOIDED_S, len(failures)) and not is_there:
                avoided[machine].add(owner)
        return {machine: frozenset(owners) for machine, owners in avoided.items()}

    def resting(self) -> frozenset[Owner]:
        return frozenset(owner for owner, failures in self.of_owner.items() if self._rests(owner, failures))

    def _rests(self, owner: Owner, failures: Collection[FailureView]) -> bool:
        newest = min(failures, key=lambda one: one.age_s)
        if len(failures) < 2:
            return False
        wait_s = doubled(RETRY_S, len(failures) - 1, LONGEST_RETRY_S)
        return newest.age_s <= wait_s and not self.works_elsewhere(newest)


def _is_work_of(phase: PhaseView, owner: Owner) -> bool:
    return (phase.job_id, phase.role) == owner and is_proven(phase)


def is_proven(phase: PhaseView) -> bool:
    return phase.state is PhaseState.ACTIVE and phase.age_s > PROVEN_S


def _works_since(machine: MachineView, failure: FailureView) -> bool:
    """Whether a later phase of the same kind works: agents use no device, so they prove nothing of engines."""
    is_agents = failure.role is Role.AGENT
    return any(
        phase.fence > failure.fence and (phase.role is Role.AGENT) is is_agents and is_proven(phase)
        for phase in machine.phases
    )


def doubled(first_s: float, num: int, longest_s: float = LONGEST_S) -> float:
    """Return how long to wait after `num` failures."""
    return float(min(first_s * 2.0 ** min(num - 1, 30), longest_s))
