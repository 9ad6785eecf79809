"""Machines over REST: list, show, register, edit with an ETag, ledger; the logs of phases."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
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
from seamlessflow.control_plane.common.http.etags import etag, if_match, if_match_parameter
from seamlessflow.control_plane.common.http.pages import PageQuery
from seamlessflow.control_plane.common.http.query import (
    IntegerParameter,
    MomentParameter,
    Query,
    TextParameter,
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
from seamlessflow.core.types.desired_state import MachineEdit

DEFAULT_LEDGER_WINDOW = timedelta(hours=1)


class MachineListRegisterApi(ProjectApi):
    @endpoint("machine_list", Operation.MACHINE_READ, page=MachineOutput)
    def get(self, request: Request) -> Response:
        """List the machines that you can see, with their tags, health and current phase."""
        return self.page(machine_list_visible(access=self.access))

    @endpoint(
        "machine_register",
        Operation.MACHINE_EDIT,
        {201: MachineRegisteredOutput},
        request=MachineRegisterInput,
    )
    def post(self, request: Request) -> Response:
        """Register a machine and give it a new token. For operators only.

        A machine of this name that already exists is kept, and so are its earlier tokens. The new
        token is shown only in this answer (201).
        """
        machine, secret = machine_register(**self.body, author=self.access.author)
        shown = machine_get_visible(access=self.access, machine_id=machine.id)
        return Response(MachineOutput(shown).data | {"token": secret}, status=HTTPStatus.CREATED)


class MachineDetailApi(ProjectApi):
    @endpoint("machine_get", Operation.MACHINE_READ, MachineOutput)
    def get(self, request: Request, machine_id: UUID) -> Response:
        """Show a machine. The `ETag` of the answer is the generation that an edit must name."""
        return _machine_response(machine_get_visible(access=self.access, machine_id=machine_id))

    @endpoint(
        "machine_edit",
        Operation.MACHINE_EDIT,
        MachineOutput,
        headers=[if_match_parameter("machine")],
        request=MachineEditInput,
    )
    def patch(self, request: Request, machine_id: UUID) -> Response:
        """Edit the desired state of a machine. For operators only.

        Draining a machine cordons it as well.

        `If-Match` has the generation that the edit is based on. Without it the request is refused
        (428); if the machine was edited in the meantime, it is refused as well (412). A
        phase that no longer fits the machine is drained. An edit that changes nothing records
        nothing.
        """
        access = self.access
        machine_get_visible(access=access, machine_id=machine_id)
        access.check(self.endpoint.operation)
        generation = if_match(request, "machine")
        machine_edit(
            machine_id=machine_id,
            edit=MachineEdit.of(self.body),
            reason=self.body["reason"],
            author=access.author,
            generation=generation,
        )
        return _machine_response(machine_get_visible(access=access, machine_id=machine_id))


class MachineEventListApi(ProjectApi):
    @endpoint("machine_event_list", Operation.MACHINE_READ, page=EventOutput)
    def get(self, request: Request, machine_id: UUID) -> Response:
        """List the edits of a machine, newest first: who, when, why, before and after."""
        machine = machine_get_visible(access=self.access, machine_id=machine_id)
        return self.page(machine_event_list(machine=machine))


class LedgerQuery(Query):
    since = MomentParameter("Beginning of the span. Default: an hour before `until`.")
    until = MomentParameter("End of the span. Default: now.")


class LedgerPageQuery(LedgerQuery, PageQuery):
    """A span of the ledger, a page of machines."""


class MachineLedgerListApi(ProjectApi):
    @endpoint("machine_ledger_list", Operation.MACHINE_READ, page=MachineLedgerOutput, query=LedgerPageQuery)
    def get(self, request: Request) -> Response:
        """Show the work of the machines that you can see in a span of time, by name.

        A span of more than an hour is shortened to its last hour. A page has at most 50,000
        intervals, divided equally among its machines.
        """
        since, until = _ledger_span(self.query, MAX_PAGE_WINDOW)

        def read(page: list[Any]) -> None:
            page[:] = machine_ledgers(machines=page, since=since, until=until, readable=self.access.readable)

        return self.page(machine_list_visible(access=self.access), read)


class MachineLedgerApi(ProjectApi):
    @endpoint("machine_ledger", Operation.MACHINE_READ, MachineLedgerOutput, query=LedgerQuery)
    def get(self, request: Request, machine_id: UUID) -> Response:
        """Show what a machine did in a span of time, as intervals without a gap.

        Each interval has a state, and each idle interval has a cause. A span of more than 7 days is
        shortened to its last 7 days.
        """
        machine = machine_get_visible(access=self.access, machine_id=machine_id)
        since, until = _ledger_span(self.query, MAX_WINDOW)
        ledger = machine_ledger(machine=machine, since=since, until=until, readable=self.access.readable)
        return Response(MachineLedgerOutput(ledger).data)


class JobLedgerApi(ProjectApi):
    @endpoint("job_ledger", Operation.PROJECT_READ, JobLedgerOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Show where the time of a job's machines went.

        The answer covers all machines that worked for the job, together and one by one, from the
        job's start to its end or to now, and at most the last 7 days.
        """
        job = job_get_visible(access=self.access, job_id=job_id)
        ledger = job_ledger(job=job, now=database_now(), readable=self.access.readable)
        return Response(JobLedgerOutput(ledger).data)


class PhaseLogQuery(Query):
    stream = TextParameter("Name of the log. Default: the first by name.")
    offset = IntegerParameter(
        "First byte to read, counted from the first one written. Default: 0.", default=0
    )


class PhaseLogsApi(ProjectApi):
    @endpoint("phase_logs", Operation.PROJECT_READ, LogPartOutput, query=PhaseLogQuery)
    def get(self, request: Request, phase_id: UUID) -> Response:
        """Read a part of the log of a phase.

        `stream` selects the log, `offset` the first byte. To follow a log, read on from `next_offset`.
        """
        phase = phase_get_visible(access=self.access, phase_id=phase_id)
        return Response(LogPartOutput(phase_log_read(phase=phase, **self.query)).data)


def _machine_response(machine: Machine) -> Response:
    return Response(MachineOutput(machine).data, headers=etag(machine.generation))


def _ledger_span(query: Mapping[str, Any], longest: timedelta) -> tuple[datetime, datetime]:
    now = database_now()
    until = min(query["until"] or now, now)
    since = query["since"] or until - DEFAULT_LEDGER_WINDOW
    if since >= until:
        raise field_error("since", f"{since.isoformat()} is not before {until.isoformat()}")
    return max(since, until - longest), until
