"""The worker protocol over HTTP (`core.protocol.worker`): plain views, msgspec bodies, no framework in between."""

import functools
from collections.abc import Callable
from http import HTTPStatus
from typing import Concatenate, ParamSpec, TypeVar
from uuid import UUID

import msgspec
from django.db import DataError, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from seamlessflow.control_plane.cluster.services.machines import machine_join
from seamlessflow.control_plane.common.database.availability import DATABASE_AWAY
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.errors import ApplicationError, conflict, field_error, not_found
from seamlessflow.control_plane.common.http.problems import data_refused, database_away, problem_response
from seamlessflow.control_plane.policies.services.versions import version_publish
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.services.points import log_append, metrics_record
from seamlessflow.control_plane.telemetry.services.session_logs import session_logs_store
from seamlessflow.control_plane.worker_protocol.authentication import (
    join_authenticate,
    machine_authenticate,
    phase_authenticate,
)
from seamlessflow.control_plane.worker_protocol.heartbeats import heartbeat_take
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.protocol.worker import (
    PROTOCOL_VERSION,
    Heartbeat,
    Join,
    Joined,
    MetricReport,
    Publication,
    SessionLogs,
)
from seamlessflow.core.types.ledger import LedgerState

Body = TypeVar("Body", Heartbeat, Join, Publication, MetricReport, SessionLogs)
Arguments = ParamSpec("Arguments")
# After the first release the previous version is accepted as well.
ACCEPTED_PROTOCOLS = frozenset({PROTOCOL_VERSION})

MAX_MONOTONIC_S = 3.2e9  # a century: beyond, calendars end


def worker_view(
    view: Callable[Concatenate[HttpRequest, Arguments], HttpResponse],
) -> Callable[Concatenate[HttpRequest, Arguments], HttpResponse]:
    """Accept POST only, without CSRF checks (there is no cookie), and answer anticipated faults as problems."""

    def guarded(request: HttpRequest, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> HttpResponse:
        if request.method != "POST":
            return problem_response(
                HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} is not accepted; accepted: POST"
            )
        try:
            return view(request, *args, **kwargs)
        except ApplicationError as error:
            return problem_response(error.status, error.detail, error.faults)
        except DATABASE_AWAY:
            return database_away(request)
        except DataError as error:
            return problem_response(HTTPStatus.BAD_REQUEST, data_refused(error))

    functools.update_wrapper(guarded, view)
    return csrf_exempt(guarded)


@worker_view
def join(request: HttpRequest) -> HttpResponse:
    join_authenticate(request)
    body = _decode(request, Join)
    machine, secret = machine_join(name=body.name, tags=body.tags, stored_token=body.stored_token)
    return _json(Joined(name=machine.name, tags=list(machine.tags), token=secret))


@worker_view
def heartbeat(request: HttpRequest) -> HttpResponse:
    machine_id = machine_authenticate(request)
    body = _decode(request, Heartbeat)
    _check_times(body)
    reply = heartbeat_take(machine_id=machine_id, heartbeat=body, now=database_now())
    if reply is None:
        raise ApplicationError("the machine was deleted", status=HTTPStatus.GONE)
    return _json(reply)


@worker_view
def publications(request: HttpRequest) -> HttpResponse:
    claims = phase_authenticate(request)
    return _json(version_publish(claims=claims, publication=_decode(request, Publication)))


@worker_view
def metrics(request: HttpRequest) -> HttpResponse:
    claims = phase_authenticate(request)
    body = _decode(request, MetricReport)
    live = Phase.objects.filter(id=claims.phase_id, fence=claims.fence, state__in=LIVE_PHASE_STATES)
    if not live.exists():
        raise conflict("the phase is over; its machine may have a newer lease")
    metrics_record(job_id=claims.job_id, project_id=claims.project_id, step=body.step, values=body.values)
    return HttpResponse(status=HTTPStatus.NO_CONTENT)


@worker_view
def session_logs(request: HttpRequest) -> HttpResponse:
    """Store what sessions of the phase's job printed. A phase that is over may still report its last ones."""
    claims = phase_authenticate(request)
    phase = Phase.objects.filter(id=claims.phase_id, fence=claims.fence).first()
    if phase is None:
        raise conflict("the phase does not exist any more")
    session_logs_store(phase=phase, logs=_decode(request, SessionLogs).logs)
    return HttpResponse(status=HTTPStatus.NO_CONTENT)


@worker_view
def phase_logs(request: HttpRequest, phase_id: UUID) -> HttpResponse:
    machine_id = machine_authenticate(request)
    phase = Phase.objects.filter(id=phase_id, machine_id=machine_id).first()
    if phase is None:
        raise not_found("phase of this machine", phase_id)
    with transaction.atomic():
        next_offset = log_append(
            phase=phase,
            stream=request.GET.get("stream", ""),
            offset=_query_number(request, "offset"),
            data=request.body,
            num_lost=_query_number(request, "lost"),
        )
    return _json({"next_offset": next_offset})


def _query_number(request: HttpRequest, name: str) -> int:
    """Return a number from the query, or 0 if it is left out. Raises ApplicationError."""
    text = request.GET.get(name, "0")
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise field_error(name, f"{text!r} is not accepted; accepted: a whole number from 0 on")
    return int(text)


def _check_times(heartbeat: Heartbeat) -> None:
    """Refuse times and causes that the ledger cannot store. Raises ApplicationError."""
    moments = [heartbeat.monotonic_s, heartbeat.open_since_s or 0.0]
    moments += [edge for item in heartbeat.intervals for edge in (item.start_s, item.end_s)]
    wrong = [moment for moment in moments if not 0.0 <= moment <= MAX_MONOTONIC_S]
    if wrong:
        raise field_error(
            "monotonic_s", f"{wrong[0]!r} is not accepted; accepted: 0 to {MAX_MONOTONIC_S:g} seconds"
        )
    for item in heartbeat.intervals:
        if (item.state is LedgerState.IDLE) != (item.cause is not None):
            raise field_error(
                "intervals",
                f"interval {item.seq} is {item.state} with cause {item.cause}; an idle interval needs a cause, "
                "others have none",
            )


def _decode(request: HttpRequest, kind: type[Body]) -> Body:
    try:
        body = msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApplicationError(f"the body is not a {kind.__name__}: {error}") from error
    if body.protocol_version not in ACCEPTED_PROTOCOLS:
        accepted = ", ".join(str(version) for version in sorted(ACCEPTED_PROTOCOLS))
        raise field_error(
            "protocol_version", f"{body.protocol_version} is not accepted; accepted: {accepted}"
        )
    return body


def _json(body: object) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(body), content_type="application/json")
