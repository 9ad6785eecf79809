"""Supervisor ↔ control plane: `POST /api/worker/v1/heartbeat`, JSON, authenticated by the machine's token.

A heartbeat reports the actual state (phases, intervals, capabilities); each answer repeats the desired state (orders,
warm processes). A doorbell only makes the supervisor send its next heartbeat at once. An order with an old fence
changes nothing.

Other routes under `/api/worker/v1`, authenticated by a phase credential (`Authorization: Bearer sfp_…`):
`POST /publications` (Publication → PublicationReply, 409 when fenced off) and `POST /metrics` (MetricReport → 204);
by the machine token: `POST /phases/<uuid>/logs?stream=&offset=&lost=` (bytes → {"next_offset": n}; `lost`: the sender
has lost this many bytes before `offset`, so the log continues after a gap); by the installation's join token:
`POST /join` (Join → Joined, 409 while another host uses the name).
"""

from typing import Any
from uuid import UUID

import msgspec

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.core.types.tags import Role
from seamlessflow.core.types.transports import WeightTransport

PROTOCOL_VERSION = 2


class Join(msgspec.Struct, frozen=True, kw_only=True):
    """A host that asks to be a machine. Tags count when it is new; a known machine keeps those it was given.

    `stored_token`: what the host was given when it joined before. It proves that the host is that machine; without it
    nobody takes the name of a machine that is heard of.
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
    """How the version that an engine serves came to it."""

    version: int
    transport: WeightTransport  # never auto
    num_bytes: int  # sent by the transport; 0 for files
    seconds: float
    fallback: str = ""  # why the files were used after all, in one clause


class PhaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor knows of one phase."""

    phase_id: UUID
    fence: int
    state: PhaseState  # starting, active, draining, ended or failed
    reason: str = ""
    endpoint: str | None = None  # rollout: base URL of the front
    served_version: int | None = None  # rollout: version the engine serves
    num_in_flight: int | None = None  # rollout: requests at the front
    arrival: WeightsArrival | None = None  # rollout: of the version served, unless the engine began with it


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A closed span of the machine's ledger, on the machine's monotonic clock. Consecutive `seq` touch exactly."""

    seq: int  # from 0 at each boot
    state: LedgerState
    cause: IdleCause | None = None  # set exactly when state is idle
    job_id: UUID | None = None
    start_s: float
    end_s: float
    mean_in_flight: float | None = None  # serving: mean requests in flight


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    num_cores: int
    memory_bytes: int
    accelerators: list[str] = []
    engine_kinds: list[str] = []
    engine_problems: dict[str, str] = {}  # kinds that cannot run here, and why, in one clause
    software: dict[str, str] = {}
    rendezvous: str = ""  # host:port at which its trainer meets those of other machines; "": it cannot


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    protocol_version: int = PROTOCOL_VERSION
    boot_id: UUID  # new each time the supervisor starts
    monotonic_s: float  # the machine's clock when sent
    capabilities: Capabilities | None = None  # on the first heartbeat of a boot
    phases: list[PhaseReport] = []
    intervals: list[Interval] = []  # closed since the last acknowledged one
    open_state: LedgerState | None = None  # state of the interval still open
    open_cause: IdleCause | None = None
    open_since_s: float | None = None


class WeightsReference(msgspec.Struct, frozen=True, kw_only=True):
    """A published policy version. Version 0 is the initial model: `uri` is its folder."""

    version: int
    uri: str


class GangOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A train phase is one of several, on as many machines, which train as one under one fence.

    Member 0 leads: it alone leases batches and publishes. The ranks of member m follow on those of members before it.
    """

    gang_id: UUID
    member: int
    machines: list[str]  # names, by member
    address: str  # host:port at which the leader admits the others; "" until its supervisor reports it
    secret: str  # proves to members that they belong together; unique to this gang

    @property
    def leads(self) -> bool:
        return self.member == 0


class PhaseOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What one phase should be."""

    phase_id: UUID
    fence: int
    role: Role
    job_id: UUID
    project_id: UUID
    is_draining: bool  # true: hand over, then report ended
    drain_grace_s: float | None = (
        None  # draining: how long running work may continue; None: the child decides
    )
    credential: str  # for the gateway and the control plane; "" for members of a gang that do not lead
    front_token: str  # rollout: what gateways present to the front
    weights: WeightsReference  # rollout: serve this; train: latest published
    num_batches: int | None = (
        None  # train: end after this many updates unless the next batch is ready; None: continue
    )
    gang: GangOrder | None = None  # train: with other machines


class WarmProcess(msgspec.Struct, frozen=True, kw_only=True):
    """Children of this job and role may stay (or be started ahead) on the machine; others are stopped.

    Holds everything a child needs to start: an order refers to its warm_process by (job_id, role).
    """

    job_id: UUID
    project_id: UUID
    role: Role
    spec: dict[str, Any]  # the resolved JobSpec
    model_path: str  # local folder of the initial model
    weights: WeightsReference  # latest published when sent
    artifact_root: str  # file:// URL under which <job>/versions/<n>/ and <job>/checkpoints/ live
    gateway_url: str
    control_plane_url: str


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    protocol_version: int = PROTOCOL_VERSION
    machine_id: UUID
    name: str
    tags: list[str]
    orders: list[PhaseOrder]
    warm_processes: list[WarmProcess]
    interval_s: float  # send the next heartbeat after this, unless a doorbell rings
    num_intervals_acked: int  # intervals with seq below this are stored
    is_cordoned: bool = False
    awaits_gang_of: UUID | None = (
        None  # the job for which it is kept free until other machines are free to train with it
    )


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """Trainer → control plane: these weights exist. Compare-and-set on (job, version, fence)."""

    protocol_version: int = PROTOCOL_VERSION
    version: int
    parent_version: int
    optimizer_step: int
    batch_number: int
    uri: str
    manifest_sha256: str
    num_bytes: int
    checkpoint_uri: str | None = None  # set when this update left a durable checkpoint
    metrics: dict[str, float] = {}


class PublicationReply(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    is_job_complete: bool  # num_updates reached: the trainer may stop


class MetricReport(msgspec.Struct, frozen=True, kw_only=True):
    protocol_version: int = PROTOCOL_VERSION
    step: int
    values: dict[str, float]
