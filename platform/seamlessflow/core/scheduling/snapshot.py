"""What one scheduling cycle sees: frozen values of machines, live phases and unfinished jobs.

The code that takes the snapshot measures ages; the scheduler itself has no clock. Values that differ
in their ages only are equal, because time passes in every snapshot: `quiet` says when it matters. The
order of its rows has no meaning: `Snapshot` sorts them, so equal contents give equal plans.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from uuid import UUID

from seamlessflow.core.algorithms.staleness_bound import ON_POLICY, StalenessBound
from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.decisions import NextPhase
from seamlessflow.core.scheduling.heartbeats import HEARTBEAT_LIMIT_S
from seamlessflow.core.sizing.job_needs import DeviceMemory, JobNeeds
from seamlessflow.core.types.desired_state import DesiredState
from seamlessflow.core.types.tags import Role

NO_PROJECT = UUID(int=0)
Owner = tuple[UUID, Role]  # a job, and the role in which it uses a machine
_OWN_TAG = {role: frozenset({role.value}) for role in Role}


@dataclass(frozen=True, slots=True, kw_only=True)
class GangView:
    """The gang that a train phase is a member of. Its phases live and end together."""

    id: UUID
    member: int  # 0 leads
    failure: str = ""  # why the first failed phase failed
    has_ended: bool = False  # a member's phase has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceView:
    """How fast an engine samples while it is full. `share`: of the median rate of the `num_others` other machines that
    roll out for the same job."""

    is_slow: bool
    share: float = field(compare=False)
    num_others: int = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseView:
    """A live phase. `age_s` counts from the lease, then from when it became active, then from the
    order to drain."""

    id: UUID
    job_id: UUID
    role: Role
    state: PhaseState
    fence: int
    desired_version: int = 0
    served_version: int | None = None
    age_s: float = field(default=0.0, compare=False)
    # Requests at the engine, as its supervisor reported last. It changes all the time, and only a choice depends on it.
    num_in_flight: int = field(default=0, compare=False)
    num_batches: int | None = None  # train: the turn ends after this many updates; None: it lasts
    then: NextPhase | None = None  # the phase that was decided to follow it on the machine
    gang: GangView | None = None
    pace: PaceView | None = None  # None: unknown

    @property
    def is_leaving(self) -> bool:
        return self.state is PhaseState.DRAINING


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureView:
    """A phase that failed lately, and neither because its machine fell silent nor together with its gang.

    `age_s` counts from its end. `machine_works`: the machine has finished work well since; `job_works`: the job has,
    in the same role on another machine.
    """

    machine_id: UUID
    job_id: UUID
    role: Role
    fence: int
    reason: str = ""
    age_s: float = field(default=0.0, compare=False)
    machine_works: bool = False
    job_works: bool = False

    @property
    def owner(self) -> Owner:
        return (self.job_id, self.role)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineView:
    """A machine gets no work for `backoff_s`, and after that one phase that shows whether it works again.

    `num`: how many there were without good work in between; `is_proven`: such a phase has ended well; `until_at`: when
    the backoff ends, for people to read; `is_slow`: the machine rolled out slowly, so that only its pace clears it.
    """

    reason: str
    num: int = 1
    backoff_s: float
    age_s: float = field(default=0.0, compare=False)
    until_at: datetime | None = None
    is_proven: bool = False
    is_slow: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the machine may be tried again."""
        return self.age_s > self.backoff_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView(DesiredState):
    """A machine and its live phases: at most one that rolls out or trains (`phase`), and agent phases of different jobs
    (`agents`, ordered by job). `unheard_s`: the time since its last heartbeat; `unheard_limit_s`: how long that may be;
    `judged_fence`: failures of phases up to this fence are judged and say nothing any more."""

    id: UUID
    name: str
    labels: frozenset[str] = frozenset()  # reported properties of its hardware, matched like tags
    is_healthy: bool = True
    unheard_s: float = field(default=0.0, compare=False)
    unheard_limit_s: float = field(default=HEARTBEAT_LIMIT_S, compare=False)
    engine_kinds: frozenset[str] | None = None  # None: it has not reported yet
    engine_problems: Mapping[str, str] = field(default_factory=dict)  # why, for each kind that it cannot run
    num_devices: int | None = None  # that are not cordoned; None: not reported
    has_gpus: bool = False  # its devices are GPUs
    agent_slots: int = 1  # agent phases that it runs at once, beside others
    memory: DeviceMemory | None = None  # of its devices; None: unknown
    phase: PhaseView | None = None
    agents: tuple[PhaseView, ...] = ()
    quarantine: QuarantineView | None = None
    judged_fence: int = 0

    def missing(self, tags: frozenset[str]) -> frozenset[str]:
        """Return those of the tags that it has neither as tags nor as labels."""
        lacking = tags - self.tags
        return lacking - self.labels if lacking else lacking

    @property
    def phases(self) -> tuple[PhaseView, ...]:
        """All live phases."""
        return self.agents if self.phase is None else (self.phase, *self.agents)

    def phase_of(self, job_id: UUID, role: Role) -> PhaseView | None:
        """Return the live phase of the job in this role."""
        return next((one for one in self.phases if one.job_id == job_id and one.role is role), None)

    def with_phase(self, phase: PhaseView) -> "MachineView":
        """Return the machine with this phase, new or changed."""
        if phase.role is not Role.AGENT:
            return replace(self, phase=phase)
        others = (one for one in self.agents if one.id != phase.id)
        return replace(self, agents=tuple(sorted((*others, phase), key=lambda one: (one.job_id, one.id))))

    def without_phase(self, phase_id: UUID) -> "MachineView":
        if self.phase is not None and self.phase.id == phase_id:
            return replace(self, phase=None)
        return replace(self, agents=tuple(one for one in self.agents if one.id != phase_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """An unfinished job. `order` numbers jobs by creation; the smaller number comes first."""

    id: UUID
    name: str = ""
    order: int
    state: JobState
    desired: DesiredJobState = DesiredJobState.RUN
    group_size: int = 1
    groups_per_batch: int = 1
    num_updates: int = 1
    latest_version: int = 0
    published_batch: int = 0
    num_ready_groups: int = 0
    num_unpublished_batches: int = 0  # assembled, not yet in published weights
    num_open_groups: int = 0  # in progress
    staleness_bound: StalenessBound = ON_POLICY
    priority: int = 0  # among the jobs of its project, those of a higher priority are served first
    priority_ceiling: int = 0  # up to which its priority counts against the jobs of other projects
    weight: float = 1.0  # of the job among those of its project
    project_id: UUID = NO_PROJECT
    project_weight: float = 1.0
    project_quota: int | None = None  # the most machines that the project may hold; None: no limit
    # 1: it gets a machine more than its share, because others had too many; -1: one less; 2: a floor of others even.
    owed: int = 0
    engines_wanted: int | None = None  # for the turns that run or wait for an engine; None: unknown
    slots_per_engine: int = 1  # turns that one engine runs at once
    devices_per_engine: int = 1
    waiting_s: float = field(default=0.0, compare=False)  # since it entered the queue; 0 if it is not queued
    admitted_s: float = field(default=0.0, compare=False)  # since it left the queue
    published_s: float = field(default=inf, compare=False)  # since its last publication
    resumed_s: float = field(default=inf, compare=False)  # since a person asked for it to go on
    trainer_state: frozenset[UUID] = frozenset()  # machines where its last trainer ran
    hand_over_s: float = 0.0  # measured: the cost of switching a machine to training and back
    batch_interval_s: float = 0.0  # measured: between the last publications; 0 while unknown
    # Since there have been enough ready groups for a batch.
    due_age_s: float = field(default=0.0, compare=False)
    awaits_evaluation: bool = False  # its newest version still has to be evaluated
    num_failures: int = 0
    last_failure: str = ""
    pause_reason: str = ""  # why the platform itself asked for a pause
    waiting_reason: str = ""  # as it is stored
    has_external_agents: bool = False
    has_no_sessions: bool = False  # its agents, outside the platform, have had none open for a while
    has_rollout: bool = True  # false: it trains on an offline dataset, without engines or agents
    engine: str = "embedded"
    needs: JobNeeds | None = None  # of memory; None: unknown
    pools: frozenset[str] = frozenset({"default"})
    rollout_tags: frozenset[str] = frozenset()
    train_tags: frozenset[str] = frozenset()
    num_train_machines: int = 1  # that train together at least: part of the floor
    extra_train_machines: int = 0  # more that may train with them, if no job needs them when a turn begins
    least_ranks: int = 1  # training processes on each machine that trains, at least
    agent_tags: frozenset[str] = frozenset()
    agents_wanted: int = 1  # machines that its agents could use now
    agents_kept: int = 1  # machines of agents that it keeps if it has them
    agents_least: int = 1  # machines of agents that it should have whatever the demand

    @property
    def is_owed_floor(self) -> bool:
        """Whether a floor of a project that has more than its part gives way to it: to its floor while it waits."""
        return self.owed == 2 or (self.owed == 1 and self.state is JobState.QUEUED)

    @property
    def fleet_priority(self) -> int:
        """What its priority counts across projects: as much as operators let its project have."""
        return min(self.priority, self.priority_ceiling)

    def engines_on(self, machine: MachineView) -> int:
        """Return how many engines of the job the machine runs at once."""
        return (machine.num_devices or 1) // self.devices_per_engine

    def tags_of(self, role: Role) -> frozenset[str]:
        """Return every tag that a machine needs to fill `role` for this job."""
        if role is Role.ROLLOUT:
            return self.rollout_tags | _OWN_TAG[role]
        return (self.train_tags if role is Role.TRAIN else self.agent_tags) | _OWN_TAG[role]

    @property
    def has_agents(self) -> bool:
        """Whether the platform itself runs the agents of the job."""
        return self.has_rollout and not self.has_external_agents

    @property
    def trains_in_gangs(self) -> bool:
        return self.num_train_machines + self.extra_train_machines > 1

    @property
    def num_remaining_updates(self) -> int:
        return max(self.num_updates - self.published_batch, 0)

    @property
    def num_due_batches(self) -> int:
        """Number of batches that a trainer could take now, at most as many as the job still has to publish."""
        full = self.num_unpublished_batches + self.num_ready_groups // self.groups_per_batch
        return min(full, self.num_remaining_updates)


LivePhase = tuple[MachineView, PhaseView]  # a live phase, with its machine


@dataclass(frozen=True, slots=True)
class Snapshot:
    machines: tuple[MachineView, ...]
    jobs: tuple[JobView, ...]
    may_evict: bool = True  # false until every machine has had enough time to send a heartbeat
    failures: tuple[FailureView, ...] = ()  # of the last hour
    _by_job: dict[UUID, tuple[LivePhase, ...]] = field(init=False, repr=False, compare=False)
    _jobs_by_id: dict[UUID, JobView] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        machines = tuple(sorted(self.machines, key=lambda machine: machine.name))
        object.__setattr__(self, "machines", machines)
        failures = tuple(sorted(self.failures, key=lambda one: (one.machine_id, one.fence)))
        object.__setattr__(self, "failures", failures)
        object.__setattr__(self, "jobs", tuple(sorted(self.jobs, key=lambda job: (job.order, job.id))))
        object.__setattr__(self, "_jobs_by_id", {job.id: job for job in self.jobs})
        live: dict[UUID, list[LivePhase]] = {}
        for machine in machines:
            for phase in machine.phases:
                live.setdefault(phase.job_id, []).append((machine, phase))
        object.__setattr__(self, "_by_job", {job_id: tuple(group) for job_id, group in live.items()})

    def live_phases(self, job_id: UUID) -> tuple[LivePhase, ...]:
        """Return the live phases of the job, each with its machine."""
        return self._by_job.get(job_id, ())

    def holders(self) -> Set[UUID]:
        """Return the jobs that have live phases."""
        return self._by_job.keys()

    def job(self, job_id: UUID) -> JobView | None:
        """Return an unfinished job of the snapshot."""
        return self._jobs_by_id.get(job_id)
