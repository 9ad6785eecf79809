"""Machines over REST: list, show, register, edit with an ETag, ledger; the logs of phases."""

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.utils.dateparse import parse_datetime
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi
from seamlessflow.control_plane.cluster.apis.serializers import (
    LogPartOutput,
    MachineEditInput,
    MachineOutput,
    MachineRegisteredOutput,
    MachineRegisterInput,
)
from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.cluster.selectors import (
    machine_event_list,
    machine_get_visible,
    machine_list_visible,
    phase_get_visible,
)
from seamlessflow.control_plane.cluster.services.machines import machine_edit, machine_register
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.http.bodies import body_read
from seamlessflow.control_plane.common.http.etags import etag, if_match, if_match_parameter
from seamlessflow.control_plane.common.http.pages import (
    PAGE_PARAMETERS,
    page_response,
    page_serializer,
    query_integer,
)
from seamlessflow.control_plane.jobs.apis.serializers import EventOutput
from seamlessflow.control_plane.jobs.selectors.jobs import job_get_visible
from seamlessflow.control_plane.telemetry.apis.serializers import JobLedgerOutput, MachineLedgerOutput
from seamlessflow.control_plane.telemetry.selectors.ledger import (
    MAX_PAGE_WINDOW,
    MAX_WINDOW,
    job_ledger,
    machine_ledger,
    machine_ledgers,
)
from seamlessflow.control_plane.telemetry.selectors.logs import phase_log_read
from seamlessflow.core.access.operations import Operation

DEFAULT_LEDGER_WINDOW = timedelta(hours=1)
YEARS = range(2000, 2200)


class MachineListRegisterApi(ProjectApi):
    @extend_schema(
        operation_id="machine_list", parameters=PAGE_PARAMETERS, responses=page_serializer(MachineOutput)
    )
    def get(self, request: Request) -> Response:
        """List the machines that you can see, with their tags, health and current phase."""
        return page_response(request, machine_list_visible(access=self.access), MachineOutput)

    @extend_schema(
        operation_id="machine_register",
        request=MachineRegisterInput,
        responses={201: MachineRegisteredOutput},
    )
    def post(self, request: Request) -> Response:
        """Register a machine and give it a new token. For operators only.

        A machine of this name that already exists is kept, and so are its earlier tokens. The new
        token is shown only in this answer (201).
        """
        access = self.access
        access.check(Operation.MACHINE_EDIT)
        body = MachineRegisterInput(data=request.data)
        body.is_valid(raise_exception=True)
        machine, secret = machine_register(**body.validated_data, author=access.author)
        shown = machine_get_visible(access=access, machine_id=machine.id)
        return Response(MachineOutput(shown).data | {"token": secret}, status=HTTPStatus.CREATED)


class MachineDetailApi(ProjectApi):
    @extend_schema(operation_id="machine_get", responses=MachineOutput)
    def get(self, request: Request, machine_id: UUID) -> Response:
        """Show a machine. The `ETag` of the answer is the generation that an edit must name."""
        return _machine_response(machine_get_visible(access=self.access, machine_id=machine_id))

    @extend_schema(
        operation_id="machine_edit",
        parameters=[if_match_parameter("machine")],
        request=MachineEditInput,
        responses=MachineOutput,
    )
    def patch(self, request: Request, machine_id: UUID) -> Response:
        """Edit the tags, the pool or the cost of a machine, cordon it or drain it. For operators only.

        `If-Match` has the generation that the edit is based on. Without it the request is refused
        (428); if the machine was edited in the meantime, it is refused as well (412). A
        phase that no longer fits the machine is drained. An edit that changes nothing records
        nothing.
        """
        access = self.access
        machine_get_visible(access=access, machine_id=machine_id)
        access.check(Operation.MACHINE_EDIT)
        generation = if_match(request, "machine")
        edit = body_read(request, MachineEditInput)
        machine_edit(
            machine_id=machine_id,
            edit=MachineEditInput.edit(edit),
            reason=edit["reason"],
            author=access.author,
            generation=generation,
        )
        return _machine_response(machine_get_visible(access=access, machine_id=machine_id))


class MachineEventListApi(ProjectApi):
    @extend_schema(
        operation_id="machine_event_list",
        parameters=PAGE_PARAMETERS,
        responses=page_serializer(EventOutput),
    )
    def get(self, request: Request, machine_id: UUID) -> Response:
        """List the edits of a machine, newest first: who, when, why, before and after."""
        machine = machine_get_visible(access=self.access, machine_id=machine_id)
        return page_response(request, machine_event_list(machine=machine), EventOutput)


LEDGER_SPAN = [
    OpenApiParameter(
        "since", OpenApiTypes.DATETIME, description="Beginning of the span. Default: an hour before `until`."
    ),
    OpenApiParameter("until", OpenApiTypes.DATETIME, description="End of the span. Default: now."),
]


class MachineLedgerListApi(ProjectApi):
    @extend_schema(
        operation_id="machine_ledger_list",
        parameters=[*LEDGER_SPAN, *PAGE_PARAMETERS],
        responses=page_serializer(MachineLedgerOutput),
    )
    def get(self, request: Request) -> Response:
        """Show the work of the machines that you can see in a span of time, by name.

        A span of more than an hour is shortened to its last hour. A page has at most 50,000
        intervals, divided equally among its machines.
        """
        since, until = _ledger_span(request, MAX_PAGE_WINDOW)

        def read(page: list[Any]) -> None:
            page[:] = machine_ledgers(machines=page, since=since, until=until, readable=self.access.readable)

        return page_response(
            request, machine_list_visible(access=self.access), MachineLedgerOutput, prepare=read
        )


class MachineLedgerApi(ProjectApi):
    @extend_schema(operation_id="machine_ledger", parameters=LEDGER_SPAN, responses=MachineLedgerOutput)
    def get(self, request: Request, machine_id: UUID) -> Response:
        """Show what a machine did in a span of time, as intervals without a gap.

        Each interval has a state, and each idle interval has a cause. A span of more than 7 days is
        shortened to its last 7 days.
        """
        machine = machine_get_visible(access=self.access, machine_id=machine_id)
        since, until = _ledger_span(request, MAX_WINDOW)
        ledger = machine_ledger(machine=machine, since=since, until=until, readable=self.access.readable)
        return Response(MachineLedgerOutput(ledger).data)


class JobLedgerApi(ProjectApi):
    @extend_schema(
        operation_id="job_ledger",
        responses=JobLedgerOutput,
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """Show where the time of a job's machines went.

        The answer covers all machines that worked for the job, together and one by one, from the
        job's start to its end or to now, and at most the last 7 days.
        """
        job = job_get_visible(access=self.access, job_id=job_id)
        ledger = job_ledger(job=job, now=database_now(), readable=self.access.readable)
        return Response(JobLedgerOutput(ledger).data)


class PhaseLogsApi(ProjectApi):
    @extend_schema(
        operation_id="phase_logs",
        parameters=[
            OpenApiParameter("stream", description="Name of the log. Default: the first by name."),
            OpenApiParameter(
                "offset",
                OpenApiTypes.INT,
                description="First byte to read, counted from the first one written. Default: 0.",
            ),
        ],
        responses=LogPartOutput,
    )
    def get(self, request: Request, phase_id: UUID) -> Response:
        """Read a part of the log of a phase.

        `stream` selects the log, `offset` the first byte. To follow a log, read on from `next_offset`.
        """
        phase = phase_get_visible(access=self.access, phase_id=phase_id)
        offset = query_integer(request, "offset", default=0)
        passage = phase_log_read(phase=phase, stream=request.query_params.get("stream"), offset=offset)
        return Response(LogPartOutput(passage).data)


def _machine_response(machine: Machine) -> Response:
    return Response(MachineOutput(machine).data, headers=etag(machine.generation))


def _ledger_span(request: Request, longest: timedelta) -> tuple[datetime, datetime]:
    now = database_now()
    until = min(_query_moment(request, "until", default=now), now)
    since = _query_moment(request, "since", default=until - DEFAULT_LEDGER_WINDOW)
    if since >= until:
        raise field_error("since", f"{since.isoformat()} is not before {until.isoformat()}")
    return max(since, until - longest), until


def _query_moment(request: Request, name: str, *, default: datetime) -> datetime:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        # An unescaped '+' arrives as a space.
        moment = parse_datetime(text.replace(" ", "+"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or moment.year not in YEARS:
        raise field_error(
            name,
            f"{text!r} is not accepted; accepted: an RFC 3339 moment such as 2026-01-31T12:00:00Z, from the year "
            f"{YEARS.start} on",
        )
    return moment
