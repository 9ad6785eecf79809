"""The protocol of workers with control plane and gateway, as `api_schema/worker.openapi.json` publishes it.

Defines `WORKER` from the types of `core.protocol.worker` and `core.protocol.data_plane`. Invariant: it has exactly the
routes of hosts, machines and phases of `core.access.routes`; a test compares them.
"""

import msgspec

from seamlessflow.core.protocol.data_plane import (
    BatchLeaseRequest,
    GroupLeaseReply,
    GroupLeaseRequest,
    SessionsEnded,
    SessionsHeldReply,
    SessionsHeldRequest,
    SessionsRefused,
)
from seamlessflow.core.protocol.openapi import BYTES, PROBLEM, ApiAnswer, ApiOperation, Contract, Parameter
from seamlessflow.core.protocol.worker import (
    PROTOCOL_VERSION,
    Heartbeat,
    HeartbeatReply,
    Join,
    Joined,
    MetricReport,
    Publication,
    PublicationReply,
    SessionLogs,
)

JOIN_TOKEN, MACHINE_TOKEN, PHASE_CREDENTIAL = "joinToken", "machineToken", "phaseCredential"


class LogTaken(msgspec.Struct, frozen=True, kw_only=True):
    next_offset: int  # the offset of the next byte to send


class WorkerFault(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    detail: str


class WorkerProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem (RFC 9457). The gateway adds `error`, in the form that OpenAI clients read."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[WorkerFault]


def _refused(description: str) -> ApiAnswer:
    return ApiAnswer(description, WorkerProblem, PROBLEM)


_COMMON = {
    400: _refused("The body has a fault, or its `protocol_version` is not accepted."),
    401: _refused("The credential is unknown, revoked or expired."),
    503: _refused("The platform is unavailable for a moment: try again after `Retry-After`."),
}
_FENCED = {409: _refused("The phase is over, or another phase has a newer fence.")}
_OF_PHASE = {**_COMMON, 403: _refused("The route needs a phase of another role.")}
CONTROL_PLANE = [
    ApiOperation(
        method="post",
        path="/api/worker/v1/join",
        name="join",
        summary="Join the installation as a machine",
        description="A machine that is already known keeps its tags. Its earlier tokens are revoked.",
        security=JOIN_TOKEN,
        body=Join,
        answers={
            200: ApiAnswer("The machine and its token.", Joined),
            **_COMMON,
            409: _refused("Another host uses this name."),
        },
    ),
    ApiOperation(
        method="post",
        path="/api/worker/v1/heartbeat",
        name="heartbeat",
        summary="Report the actual state and get the desired one",
        description=(
            "The supervisor of a machine sends a heartbeat every `interval_s` seconds, and at once after a doorbell."
        ),
        security=MACHINE_TOKEN,
        body=Heartbeat,
        answers={
            200: ApiAnswer("Orders and warm processes.", HeartbeatReply),
            **_COMMON,
            410: _refused("The machine was deleted."),
        },
    ),
    ApiOperation(
        method="post",
        path="/api/worker/v1/publications",
        name="publish",
        summary="Publish a policy version",
        description="A compare-and-set on job, version and fence. Publishing the same version again changes nothing.",
        security=PHASE_CREDENTIAL,
        body=Publication,
        answers={200: ApiAnswer("The version is published.", PublicationReply), **_COMMON, **_FENCED},
    ),
    ApiOperation(
        method="post",
        path="/api/worker/v1/metrics",
        name="metrics_report",
        summary="Report metrics of a step",
        description="A value that is reported again replaces the earlier one.",
        security=PHASE_CREDENTIAL,
        body=MetricReport,
        answers={204: ApiAnswer("The values are stored."), **_COMMON, **_FENCED},
    ),
    ApiOperation(
        method="post",
        path="/api/worker/v1/sessions/logs",
        name="session_logs_store",
        summary="Report what sessions have printed",
        description=(
            "Each log replaces the one that was reported earlier, unless that was longer. `head` and `tail` are in "
            "base64. Logs of sessions of other jobs are ignored."
        ),
        security=PHASE_CREDENTIAL,
        body=SessionLogs,
        answers={204: ApiAnswer("The logs are stored."), **_COMMON, **_FENCED},
    ),
    ApiOperation(
        method="post",
        path="/api/worker/v1/phases/{phase_id}/logs",
        name="log_append",
        summary="Append to the log of a phase",
        description="The body has the bytes of the log from `offset` on.",
        security=MACHINE_TOKEN,
        parameters=[
            Parameter("phase_id", "path", "Identifier of the phase, a UUID."),
            Parameter("stream", "query", "Name of the log."),
            Parameter(
                "offset",
                "query",
                "The first byte of the body, counted from the first one written.",
                "integer",
            ),
            Parameter("lost", "query", "How many bytes before `offset` the sender no longer has.", "integer"),
        ],
        body_type=BYTES,
        answers={
            200: ApiAnswer("The offset from which to continue.", LogTaken),
            **_COMMON,
            404: _refused("The machine has no such phase."),
        },
    ),
]
GATEWAY = [
    ApiOperation(
        method="post",
        path="/runner/v1/groups/lease",
        name="groups_lease",
        summary="Lease rollout groups for an agent runner",
        description="Waits up to `wait_s` seconds until the job admits a group.",
        security=PHASE_CREDENTIAL,
        body=GroupLeaseRequest,
        answers={
            200: ApiAnswer(
                "Groups with the sessions to run; empty if no group was admitted in time.", GroupLeaseReply
            ),
            **_OF_PHASE,
            **_FENCED,
        },
    ),
    ApiOperation(
        method="post",
        path="/runner/v1/sessions/ended",
        name="sessions_ended",
        summary="Report the ends of several sessions",
        description="Every end that can be accepted is stored. The answer says why the others were refused.",
        security=PHASE_CREDENTIAL,
        body=SessionsEnded,
        answers={
            200: ApiAnswer("The reason for each refused session.", SessionsRefused),
            **_OF_PHASE,
            **_FENCED,
        },
    ),
    ApiOperation(
        method="post",
        path="/runner/v1/sessions/held",
        name="sessions_held",
        summary="Ask how long turns waited for an engine",
        description="This time does not count towards the time limit of a task.",
        security=PHASE_CREDENTIAL,
        body=SessionsHeldRequest,
        answers={200: ApiAnswer("The seconds for each session.", SessionsHeldReply), **_OF_PHASE},
    ),
    ApiOperation(
        method="post",
        path="/trainer/v1/batches/lease",
        name="batch_lease",
        summary="Lease the next batch for a trainer",
        description="The same number always gives the same bytes until a durable checkpoint lies behind it.",
        security=PHASE_CREDENTIAL,
        body=BatchLeaseRequest,
        answers={
            200: ApiAnswer("The batch, in the format of `core.batching.format`.", None, BYTES),
            204: ApiAnswer("No batch was ready within `wait_s` seconds."),
            **_OF_PHASE,
            **_FENCED,
        },
    ),
]
WORKER = Contract(
    title="SeamlessFlow worker protocol",
    version=str(PROTOCOL_VERSION),
    description="Between workers and the platform. The control plane serves `/api/worker/v1`, the gateway `/runner/v1` "
    "and `/trainer/v1`.",
    operations=[*CONTROL_PLANE, *GATEWAY],
    schemes={
        JOIN_TOKEN: "The join token of the installation.",
        MACHINE_TOKEN: "The token of a machine.",
        PHASE_CREDENTIAL: "The credential of a phase, from its order.",
    },
)
