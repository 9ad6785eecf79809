"""The callers of every route of the gateway, and of the routes of the web that no operation decides.

A handler of `/api/v1` for people names its `Operation` itself, by `endpoint`; every other new route needs a row here.
tests/integration/control_plane/accounts/test_route_access.py finds all routes and calls them as every role with every
scope. An `Operation` is decided by the table of `operations`. A `Caller` marks a route for a program with a credential
of its own, or without any.
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

WEB_CALLERS: Mapping[tuple[str, str], Caller] = {
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
