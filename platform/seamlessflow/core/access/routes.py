"""Every route of the web and of the gateway, and who may call it.

A new route needs a row here: the web refuses a route of `/api/v1` without one, and tests/integration/
test_route_access.py calls all of them as every role with every scope. An `Operation` is decided by the table of
`operations`. A `Caller` marks a route for a program that shows its own credential, or for everybody.
"""

from collections.abc import Mapping
from enum import StrEnum

from seamlessflow.core.access.operations import Operation


class Caller(StrEnum):
    """The caller of a route that no project role governs."""

    PUBLIC = "anyone, without a credential"
    BROWSER = "a browser that is signed in"
    STAFF = "staff in the admin site, by Django's permissions"
    JOIN = "a host with the join token"
    MACHINE = "a machine with its token"
    PHASE = "a phase with its credential"
    SESSION = "a session with its key"


Entry = Operation | Caller
Routes = Mapping[tuple[str, str], Entry]  # (method, route as the router writes it)

API = "api/v1/"
WORKER_API = "api/worker/v1/"
ADMIN_SITE = "admin/"  # Django's own routes, all of them for staff

_JOB = "jobs/<job:job_id>"
_MACHINE = "machines/<machine:machine_id>"
_SESSION = "sessions/<session:session_id>"
_MEMBERS = "projects/<slug:slug>/members"
_GRANT = "pools/<slug:pool>/grants/<slug:slug>"
_GROUP = "groups/<group:group_id>"

_READS = (
    "jobs",
    "queue",
    "shares",
    _JOB,
    f"{_JOB}/versions",
    f"{_JOB}/versions/<int:version>/export",
    f"{_JOB}/metrics",
    f"{_JOB}/events",
    f"{_JOB}/phases",
    f"{_JOB}/ledger",
    f"{_JOB}/groups",
    f"{_JOB}/evaluations",
    f"{_JOB}/audit",
    f"{_JOB}/summary",
    f"{_JOB}/trajectories/<str:table>",
    f"{_JOB}/vocabulary",
    "phases/<phase:phase_id>/logs",
    "uploads",
    "extensions",
    "storage",
    "storage/jobs",
    f"storage/{_JOB}",
    "storage/uploads",
    _MEMBERS,
    "storage/policy",
    "storage/plan",
    "storage/deletions",
    _GROUP,
    f"{_GROUP}/forest",
    _SESSION,
    f"{_SESSION}/nodes/<int:index>",
    f"{_SESSION}/tokens",
    f"{_SESSION}/logs",
)
_OPERATIONS: Routes = {
    **{("GET", route): Operation.PROJECT_READ for route in _READS},
    ("POST", "jobs"): Operation.JOB_SUBMIT,
    ("PATCH", _JOB): Operation.JOB_EDIT,
    ("POST", f"{_JOB}/cancel"): Operation.JOB_EDIT,
    ("POST", f"{_JOB}/pause"): Operation.JOB_EDIT,
    ("POST", f"{_JOB}/resume"): Operation.JOB_EDIT,
    ("POST", f"{_JOB}/stage"): Operation.JOB_EDIT,
    ("POST", "uploads"): Operation.UPLOAD,
    # Unless it is a dry run, the view requires STORED_DELETE for each thing named.
    ("POST", "storage/deletions"): Operation.DELETION_ASK,
    ("PATCH", "storage/policy"): Operation.RETENTION_EDIT,
    ("GET", "machines"): Operation.MACHINE_READ,
    ("GET", _MACHINE): Operation.MACHINE_READ,
    ("GET", f"{_MACHINE}/events"): Operation.MACHINE_READ,
    ("GET", "machines/ledger"): Operation.MACHINE_READ,
    ("GET", f"{_MACHINE}/ledger"): Operation.MACHINE_READ,
    ("GET", "pools"): Operation.MACHINE_READ,
    ("PUT", _GRANT): Operation.SHARE_EDIT,
    ("DELETE", _GRANT): Operation.SHARE_EDIT,
    ("PATCH", "shares/<slug:slug>"): Operation.SHARE_EDIT,
    ("POST", "machines"): Operation.MACHINE_EDIT,
    ("PATCH", _MACHINE): Operation.MACHINE_EDIT,
    ("POST", "machines/preview"): Operation.MACHINE_EDIT,
    ("POST", f"{_MACHINE}/release"): Operation.MACHINE_EDIT,
    ("POST", f"{_MACHINE}/preview"): Operation.MACHINE_EDIT,
    ("POST", _MEMBERS): Operation.MEMBER_EDIT,
    ("PATCH", f"{_MEMBERS}/<str:username>"): Operation.MEMBER_EDIT,
    ("DELETE", f"{_MEMBERS}/<str:username>"): Operation.MEMBER_EDIT,
    ("GET", "me"): Operation.ABOUT_ME,
    ("GET", "tokens"): Operation.TOKEN_LIST,
    ("POST", "tokens"): Operation.TOKEN_CREATE,
    ("DELETE", "tokens/<token:token_id>"): Operation.TOKEN_REVOKE,
}
WEB_ROUTES: Routes = {
    **{(method, API + route): operation for (method, route), operation in _OPERATIONS.items()},
    ("GET", API + "schema"): Caller.PUBLIC,
    ("GET", API + "schema/ui"): Caller.PUBLIC,
    ("POST", WORKER_API + "join"): Caller.JOIN,
    ("POST", WORKER_API + "heartbeat"): Caller.MACHINE,
    ("POST", WORKER_API + "phases/<uuid:phase_id>/logs"): Caller.MACHINE,
    ("POST", WORKER_API + "publications"): Caller.PHASE,
    ("POST", WORKER_API + "metrics"): Caller.PHASE,
    ("POST", WORKER_API + "sessions/logs"): Caller.PHASE,
    ("GET", "favicon.ico"): Caller.PUBLIC,
    ("GET", "signin"): Caller.PUBLIC,
    ("GET", "signin/<str:secret>"): Caller.PUBLIC,
    ("POST", "signin/<str:secret>"): Caller.PUBLIC,
    ("POST", "signout"): Caller.PUBLIC,
    ("GET", "healthz"): Caller.PUBLIC,
    ("GET", "metrics"): Caller.PUBLIC,
    (
        "GET",
        r"^$|^(?:jobs|queue|shares|groups|sessions|machines|tokens|members|storage)(?:/.*)?$",
    ): Caller.BROWSER,
}
GATEWAY_ROUTES: Routes = {
    ("GET", "/healthz"): Caller.PUBLIC,
    ("GET", "/metrics"): Caller.PUBLIC,
    ("GET", "/v1/models"): Caller.SESSION,
    ("GET", "/v1/models/{model}"): Caller.SESSION,
    ("POST", "/v1/chat/completions"): Caller.SESSION,
    ("POST", "/v1/completions"): Caller.SESSION,
    ("POST", "/v1/responses"): Caller.SESSION,
    ("GET", "/v1/responses/{response}"): Caller.SESSION,
    ("GET", "/v1/responses/{response}/input_items"): Caller.SESSION,
    ("GET", "/v1beta/models"): Caller.SESSION,
    ("GET", "/v1beta/models/{model}"): Caller.SESSION,
    ("POST", "/v1beta/models/{model}:generateContent"): Caller.SESSION,
    ("POST", "/v1beta/models/{model}:streamGenerateContent"): Caller.SESSION,
    ("POST", "/v1beta/models/{model}:countTokens"): Caller.SESSION,
    ("POST", "/v1/messages"): Caller.SESSION,
    ("POST", "/v1/messages/count_tokens"): Caller.SESSION,
    ("POST", "/v1/sessions"): Operation.SESSION_OPEN,
    ("POST", "/v1/sessions/{session}/reward"): Operation.SESSION_OPEN,
    ("POST", "/v1/sessions/{session}/close"): Operation.SESSION_OPEN,
    ("POST", "/runner/v1/groups/lease"): Caller.PHASE,
    ("POST", "/runner/v1/sessions/ended"): Caller.PHASE,
    ("POST", "/runner/v1/sessions/held"): Caller.PHASE,
    ("POST", "/trainer/v1/batches/lease"): Caller.PHASE,
}


class RouteWithoutRule(LookupError):
    """The route has no rule about who may call it."""


def operation_of(method: str, route: str) -> Operation:
    """Return the operation behind a route of `/api/v1`. Raises RouteWithoutRule."""
    entry = WEB_ROUTES.get((method, route))
    if not isinstance(entry, Operation):
        raise RouteWithoutRule(
            f"{method} {route} has no operation: add a row to platform/seamlessflow/core/access/routes.py"
        )
    return entry
