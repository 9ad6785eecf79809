"""Supervisor ↔ control plane: `POST /api/worker/v1/heartbeat`, JSON, authenticated by the machine's token.

A heartbeat reports the actual state (phases, intervals, capabilities); each answer repeats the desired state (orders,
warm processes). A doorbell only makes the supervisor send its next heartbeat at once. An order with an old fence
changes nothing.

Other routes under `/api/worker/v1`, authenticated by a phase credential (`Authorization: Bearer sfp_…`):
`POST /publications` (Publication → PublicationReply, 409 when fenced off), `POST /metrics` (MetricReport → 204) and
`POST /sessions/logs` (SessionLogs → 204: what sessions have printed so far);
by the machine token: `POST /phases/<uuid>/logs?stream=&offset=&lost=` (bytes → {"next_offset": n}; `lost`: the sender
has lost this many bytes before `offset`, so the log continues after a gap); by the installation's join token:
`POST /join` (Join → Joined, 409 while another host uses the name).
"""

from typing import Any
from uuid import UUID

import msgspec

from seamlessflow.core.lifecycle.phases import FailureCause, PhaseState
from seamlessflow.core.types.devices import Device
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.core.types.tags import Role
from seamlessflow.core.types.transports import WeightTransport

PROTOCOL_VERSION = 2


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A host asks to join as a machine. `tags` are used only for a new machine; a known one keeps its own.

    `stored_token` is the token that the host got when it joined earlier. It proves that the host is that machine:
    without it, no host can take the name of a machine that still reports.
    """

    protocol_version: int = PROTOCOL_VERSION
    name: str
    tags: list[str] = []
    stored_token: str = ""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tags: list[str]
    token: str  # the machine's token; earlier ones are revoked


class WeightsArrival(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine received the version that it serves."""

    version: int
    transport: WeightTransport  # never auto
    num_bytes: int  # sent by the transport; 0 if the engine read files
    seconds: float
    fallback: str = ""  # why the engine fell back to the files, in one clause
    staged_bytes: list[int] = []  # that each worker of the engine read of the version


class EngineReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the engines of a rollout phase. Without an endpoint, it gets no requests at the moment."""

    replica: int  # from 0, the same number after a restart
    endpoint: str = ""  # base URL of its door
    served_version: int | None = None
    num_in_flight: int = 0  # requests that it is answering
    problem: str = ""  # why it was lost; empty while it serves


class PhaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor reports about one phase."""

    phase_id: UUID
    fence: int
    state: PhaseState  # starting, active, draining, ended or failed
    reason: str = ""
    cause: FailureCause = FailureCause.WORK  # failed: work, or input if no machine could do better
    endpoints: list[EngineReport] | None = None  # rollout: every engine of the phase
    # rollout: how the served version arrived; None if the engine started with it
    arrival: WeightsArrival | None = None

    @property
    def served_version(self) -> int | None:
        """The oldest version that an engine of the phase serves."""
        versions = (engine.served_version for engine in self.endpoints or ())
        return min((version for version in versions if version is not None), default=None)

    @property
    def num_in_flight(self) -> int | None:
        """The number of requests at all engines; None unless the phase has engines."""
        return None if self.endpoints is None else sum(engine.num_in_flight for engine in self.endpoints)


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A closed interval of the machine's ledger, on its monotonic clock. It begins where the previous `seq` ends."""

    seq: int  # from 0 at each boot
    state: LedgerState
    cause: IdleCause | None = None  # set if and only if the state is idle
    job_id: UUID | None = None
    start_s: float
    end_s: float
    mean_in_flight: float | None = None  # serving: mean requests in flight, at all engines
    num_engines: int = 1  # serving: that had them


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    host: str = ""  # the host's name; machines that are slices of one host have the same; "" if unknown
    devices: list[Device] = []  # what this machine computes on, in order; empty if unknown
    device_problems: dict[str, str] = {}  # why a device is cordoned, by its id, in one clause
    num_cores: int
    memory_bytes: int
    accelerators: list[str] = []
    engine_kinds: list[str] = []
    engine_problems: dict[str, str] = {}  # why each missing kind cannot run here, in one clause
    software: dict[str, str] = {}
    agent_slots: int = 1  # agent phases that run at once, beside others
    rendezvous: str = ""  # host:port where trainers of other machines connect to this one


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    protocol_version: int = PROTOCOL_VERSION
    boot_id: UUID  # new each time the supervisor starts
    monotonic_s: float  # the machine's clock when sent
    capabilities: Capabilities | None = None  # on the first heartbeat of a boot, and when they have changed
    phases: list[PhaseReport] = []
    intervals: list[Interval] = []  # those closed since the last acknowledged one
    open_state: LedgerState | None = None  # state of the interval still open
    open_cause: IdleCause | None = None
    open_since_s: float | None = None


class WeightsReference(msgspec.Struct, frozen=True, kw_only=True):
    """A published policy version. Version 0 is the initial model: `uri` is its folder."""

    version: int
    uri: str


class GangOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The phase belongs to a gang: one phase on each of several machines, under one fence, which train together.

    Member 0 leads: only it leases batches and publishes. Ranks are numbered through the members in order.
    """

    gang_id: UUID
    member: int
    machines: list[str]  # names, in the order of members
    address: str  # host:port where the other members connect to the leader; "" until its supervisor has reported it
    secret: str  # by which members recognise each other; unique to this gang

    @property
    def leads(self) -> bool:
        return self.member == 0


class PhaseOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor's order for one phase."""

    phase_id: UUID
    fence: int
    role: Role
    job_id: UUID
    project_id: UUID
    is_draining: bool  # hand over the work, then report ended
    drain_grace_s: float | None = (
        None  # while draining: how long running work may continue; None: the child decides
    )
    credential: (
        str  # for requests to the gateway and the control plane; "" for members of a gang that do not lead
    )
    front_token: str  # rollout: the token that gateways present to the engine
    weights: WeightsReference  # rollout: the version to serve; train: the latest published one
    num_batches: int | None = (
        None  # train: end after this many updates unless the next batch is ready; None: no limit
    )
    gang: GangOrder | None = None  # train: set if the job trains on several machines together
    leaves_checkpoint: bool = (
        False  # train: its process may not stay, so it saves its progress before it ends
    )


class WarmProcess(msgspec.Struct, frozen=True, kw_only=True):
    """The machine may keep, or start ahead of time, a child process for this job and role. Supervisors stop all others.

    It has everything that the child needs to start. An order finds its warm process by (job_id, role).
    """

    job_id: UUID
    project_id: UUID
    role: Role
    spec: dict[str, Any]  # the resolved JobSpec
    model_path: str  # of the initial model: a folder that every host has, or a URL in the artifact store
    weights: WeightsReference  # the latest published version when this was sent
    artifact_root: (
        str  # URL under which <job>/versions/<n> and <job>/checkpoints/batch-<n> are: file:// or s3://
    )
    gateway_url: str
    control_plane_url: str
    device_bytes: int = 0  # that it certainly needs of each device while it works; 0: not known, or none
    usual_device_bytes: int = 0  # that it usually needs, by estimate


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    protocol_version: int = PROTOCOL_VERSION
    machine_id: UUID
    name: str
    tags: list[str]
    orders: list[PhaseOrder]
    warm_processes: list[WarmProcess]
    interval_s: (
        float  # time until the next heartbeat, unless a doorbell or news come first; it grows with the fleet
    )
    num_intervals_acked: int  # intervals with seq below this are stored
    is_cordoned: bool = False
    released_devices: dict[str, str] = {}  # problems that a person forgave, by the id of the cordoned device
    awaits_gang_of: UUID | None = (
        None  # the job whose gang this machine waits for: it stays free until the other machines are free
    )


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """Trainer → control plane: publish these weights as a version. A compare-and-set on (job, version, fence)."""

    protocol_version: int = PROTOCOL_VERSION
    version: int
    parent_version: int
    optimizer_step: int
    batch_number: int
    uri: str
    manifest_sha256: str
    num_bytes: int
    checkpoint_uri: str | None = None  # set if a checkpoint of this update is written or being written
    metrics: dict[str, float] = {}


class PublicationReply(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    is_job_complete: bool  # num_updates is reached, so the trainer may stop


class MetricReport(msgspec.Struct, frozen=True, kw_only=True):
    protocol_version: int = PROTOCOL_VERSION
    step: int
    values: dict[str, float]


class SessionLog(msgspec.Struct, frozen=True, kw_only=True):
    """The kept head and tail of a session's output so far. It replaces an earlier report."""

    session_id: UUID
    end: int  # number of bytes that the session has printed
    head: bytes  # the first ones
    tail: bytes = b""  # the last ones, up to `end`, if the head does not have all


class SessionLogs(msgspec.Struct, frozen=True, kw_only=True):
    """Logs of sessions of the phase's job."""

    protocol_version: int = PROTOCOL_VERSION
    logs: list[SessionLog]
