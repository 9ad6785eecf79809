"""Rows and frames of `/ws/live`: the types that the control plane fills and that pages read.

Defines one TypedDict per row, per topic's data and per kind of frame. Times are in epoch milliseconds, identifiers are
in their shown form, and None means "not known", never zero. `core.protocol.live_api` publishes them in
`api_schema/live.openapi.json`, from which the dashboard's `live/live.gen.d.ts` is generated. Invariant: everything that
goes over the socket has a type here.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState, PausedBy
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.live_events import GrowingAnswer
from seamlessflow.core.types.limits import Cost, limits_of
from seamlessflow.core.types.machine_health import MachineHealth
from seamlessflow.core.types.tags import Role

FRAME_VERSION = 1


class FrameKind(StrEnum):
    SNAPSHOT = "snapshot"
    DELTA = "delta"
    NOTICE = "notice"  # data.code: behind (the broker is away), current (it is back)
    ERROR = "error"  # data.detail


class JobRow(TypedDict):
    id: str
    name: str
    project: str
    owner: str | None
    state: JobState
    state_reason: str
    waiting_reason: str
    desired: DesiredJobState
    paused_by: Annotated[
        PausedBy | None, msgspec.Meta(description="Who paused it; the platform's pauses need attention.")
    ]
    latest_version: int
    best_version: Annotated[
        int | None, msgspec.Meta(description="The version that did best on the held-out tasks.")
    ]
    num_updates_done: int
    num_updates: int
    created_at: int
    started_at: int | None
    ended_at: int | None
    paused_at: Annotated[int | None, msgspec.Meta(description="Since when it is paused; null if it is not.")]
    paused_ms: Annotated[
        int, msgspec.Meta(description="How long it was paused from its start to its last move.")
    ]


class EngineRow(TypedDict):
    """One of the engines of a rollout phase."""

    replica: int
    served_version: int | None
    problem: Annotated[str, msgspec.Meta(description="Why it was lost; empty while it serves.")]


class PhaseRow(TypedDict):
    id: str
    machine: str
    role: Role
    state: PhaseState
    reason: str
    fence: int
    desired_version: int
    served_version: int | None
    engines: Annotated[
        list[EngineRow],
        msgspec.Meta(description="Empty if the phase has none, or one that its supervisor does not list."),
    ]
    num_batches: int | None
    gang_member: int | None
    leased_at: int
    ended_at: int | None


class DeviceRow(TypedDict):
    """A GPU, or a set of cores that is used like one."""

    id: str
    kind: str
    name: str
    memory_bytes: int
    numa: int | None
    cores: list[int]


class MachineCapabilities(TypedDict, total=False):
    """What the machine reported about itself when its supervisor started; empty before that."""

    host: str
    devices: list[DeviceRow]
    device_problems: dict[str, str]
    num_cores: int
    memory_bytes: int
    accelerators: list[str]
    engine_kinds: list[str]
    engine_problems: dict[str, str]
    software: dict[str, str]
    agent_slots: int | None
    rendezvous: str


class QuarantineRow(TypedDict):
    """Why the platform gives a machine no work until a moment, after which one phase tries it out."""

    since: int
    until: int
    reason: str
    num_quarantines: int


class DesiredRow(TypedDict):
    """The state that people set on a machine (`core.types.desired_state`)."""

    tags: list[str]
    is_cordoned: bool
    is_draining: bool
    pool: str
    cost: Annotated[float, msgspec.Meta(description=limits_of(Cost).help)]


class MachineRow(DesiredRow):
    id: str
    name: str
    labels: list[str]
    generation: int
    is_healthy: Annotated[bool, msgspec.Meta(description="Whether its supervisor sends heartbeats.")]
    health: Annotated[MachineHealth, msgspec.Meta(description="How the machine is, in one word.")]
    reason: str
    role: Annotated[
        Role | None, msgspec.Meta(description="Of the phase that rolls out or trains, else of its agents.")
    ]
    phase_state: PhaseState | None
    num_agents: Annotated[int, msgspec.Meta(description="Number of jobs whose agents it runs.")]
    version: int | None
    open_state: Annotated[
        str, msgspec.Meta(description="The current state of its ledger; empty before the first heartbeat.")
    ]
    open_cause: Annotated[str, msgspec.Meta(description="Why the machine is idle; empty while it works.")]
    open_since: int | None
    quarantine: QuarantineRow | None
    capabilities: MachineCapabilities


class IntervalRow(TypedDict):
    """A closed interval of a machine's ledger."""

    id: int
    machine: str
    state: str
    cause: str
    start: int
    end: int


class EditedState(TypedDict, total=False):
    """The fields of a machine's desired state that an edit changed."""

    tags: list[str]
    is_cordoned: bool
    is_draining: bool
    pool: str
    cost: float


class EditRow(TypedDict):
    """An edit of a machine's desired state."""

    id: int
    machine: str
    at: int
    reason: str
    author: str
    before: EditedState
    after: EditedState


EventRow = TypedDict(  # `from` is a keyword of Python
    "EventRow",
    {
        "id": int,
        "at": int,
        "kind": str,
        "from": str,
        "to": str,
        "reason": str,
        "author": str,
        "data": dict[str, Any],
    },
)


class MetricRow(TypedDict):
    name: str
    step: int
    value: float


class RewardRow(TypedDict):
    """The rewards that one published update learned from: mean and percentiles of the mean rewards of its groups."""

    batch: int
    mean: float
    low: Annotated[float, msgspec.Meta(description="The 10th percentile.")]
    high: Annotated[float, msgspec.Meta(description="The 90th percentile.")]
    num_groups: int
    tokens: Annotated[float | None, msgspec.Meta(description="Mean sampled tokens of a session.")]
    turns: Annotated[float | None, msgspec.Meta(description="Mean turns of a session.")]
    at: Annotated[int | None, msgspec.Meta(description="When the update was published.")]


class JobRewardRow(RewardRow):
    """A reward in the list of jobs, with the job that it belongs to."""

    job: str


class GroupRow(TypedDict):
    id: str
    index: int
    state: GroupState
    reason: str
    size: int
    num_rewarded: int
    reward_mean: float | None
    reward_std: float | None
    min_version: int | None
    max_version: int | None
    batch: int | None
    created_at: int


class GroupInfoRow(GroupRow):
    """A group, with the additional fields that its own page shows."""

    job: str
    job_name: str
    task_index: int | None
    evaluation: Annotated[
        int | None,
        msgspec.Meta(
            description=(
                "The version that a group of held-out tasks evaluates; null for a group that is trained on."
            )
        ),
    ]
    task: dict[str, Any]


class SessionRow(TypedDict):
    id: str
    slot: int
    attempt: int
    state: str
    reason: str
    reward: float | None
    advantage: float | None
    is_timeout: bool
    is_late: bool
    num_turns: int
    num_sampled_tokens: int
    num_nodes: int
    opened_at: int
    closed_at: int | None


class NodeRow(TypedDict):
    session: str
    index: int
    parent: int | None
    kind: int
    num_tokens: int
    spans: Annotated[
        list[int], msgspec.Meta(description="Version spans, flattened: start, version, start, version, …")
    ]
    mean_logprob: float | None
    marks: Annotated[
        int,
        msgspec.Meta(
            description=(
                "Finish reason in bits 0 to 2, whether it is partial in bit 3, then the number of hand-overs."
            )
        ),
    ]
    handover_at: list[int]
    turn: str
    prompt: int


class JobsData(TypedDict, total=False):
    """Topic `jobs:<project>`."""

    jobs: list[JobRow]
    deleted: list[str]
    rewards: list[JobRewardRow]
    truncated: Annotated[list[str], msgspec.Meta(description="Kinds of rows whose older rows are left out.")]


class JobData(TypedDict, total=False):
    """Topic `job:<id>`."""

    jobs: list[JobRow]
    deleted: list[str]
    phases: list[PhaseRow]
    events: list[EventRow]
    metrics: list[MetricRow]
    rewards: list[RewardRow]
    groups: list[GroupRow]
    tokens_per_s: float
    truncated: Annotated[list[str], msgspec.Meta(description="Kinds of rows whose older rows are left out.")]


class MachinesData(TypedDict, total=False):
    """Topics `machines` (of the open pool) and `machines:<pool>`."""

    machines: list[MachineRow]
    intervals: list[IntervalRow]
    edits: list[EditRow]
    left: Annotated[list[str], msgspec.Meta(description="Names of machines that are in another pool now.")]
    truncated: Annotated[list[str], msgspec.Meta(description="Kinds of rows whose older rows are left out.")]


class GroupData(TypedDict, total=False):
    """Topic `group:<id>`. Gateways send `growing`; everything else comes from the database."""

    group: GroupInfoRow
    sessions: list[SessionRow]
    nodes: list[NodeRow]
    growing: list[GrowingAnswer]


class NoticeData(TypedDict):
    """Whether the source of live frames is away (`behind`) or back (`current`)."""

    code: Literal["behind", "current"]


class ErrorData(TypedDict):
    detail: str


class Envelope(TypedDict):
    """The fields of every frame. `epoch` identifies one run of the numbering: when it changes, `seq` starts over."""

    v: Literal[1]
    topic: str
    epoch: str
    seq: int
    at: int


class Frame(Envelope):
    """Any frame. `data` depends on `kind` and `topic`: see JobsFrame, JobFrame, MachinesFrame, GroupFrame and so on."""

    kind: FrameKind
    data: dict[str, Any]


class JobsFrame(Envelope):
    kind: Literal["snapshot", "delta"]
    data: JobsData


class JobFrame(Envelope):
    kind: Literal["snapshot", "delta"]
    data: JobData


class MachinesFrame(Envelope):
    kind: Literal["snapshot", "delta"]
    data: MachinesData


class GroupFrame(Envelope):
    kind: Literal["snapshot", "delta"]
    data: GroupData


class NoticeFrame(Envelope):
    kind: Literal["notice"]
    data: NoticeData


class ErrorFrame(Envelope):
    kind: Literal["error"]
    data: ErrorData


FRAMES = (JobsFrame, JobFrame, MachinesFrame, GroupFrame, NoticeFrame, ErrorFrame)
