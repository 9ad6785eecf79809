"""`jobs logs`: prints what a job's processes and sessions printed, and follows it while it grows."""

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click

from seamlessflow.cli.connection import connect
from seamlessflow.cli.errors import CliError
from seamlessflow.cli.identifiers import Identifier
from seamlessflow.client import Client
from seamlessflow.client.errors import Json
from seamlessflow.core.lifecycle.groups import SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, JobState
from seamlessflow.core.types.ids import IdKind

STOPPED = TERMINAL_JOB_STATES | {JobState.PAUSED}
NOTHING = "nothing has been printed; what an agent prints is in the log of its session (--session)"
POLL_S = 1.0
SHIPPING_S = 3.0  # the last lines may arrive this long after the end


@click.command("logs")
@click.argument("job_id", type=Identifier(IdKind.JOB))
@click.option(
    "--session", type=Identifier(IdKind.SESSION), metavar="ID", help="Print what this session printed."
)
@click.option("--phase", type=Identifier(IdKind.PHASE), metavar="ID", help="Print the log of this phase.")
@click.option(
    "--follow", is_flag=True, help="Go on until the session, the phase or the job has ended or is paused."
)
def logs(job_id: str, session: str | None, phase: str | None, follow: bool) -> None:
    """Print the logs of a job.

    Without options, these are the logs of all phases, the oldest first. What an agent's program
    printed is in the log of its session: --session.
    """
    if session and phase:
        raise CliError("--session and --phase exclude each other", exit_code=2)
    with connect() as client:
        printer = Printer()
        if session:
            _session_check(client, job_id, session)
            _print(printer, functools.partial(_of_session, client, session), follow=follow)
        else:
            client.job_get(job_id)
            _print(printer, functools.partial(_of_phases, client, job_id, phase), follow=follow)
        if printer.is_empty:
            click.echo("nothing has been printed" if session else NOTHING, err=True)


@dataclass(frozen=True, slots=True)
class LogSource:
    """A log: its heading, and how a chunk of it is read."""

    key: str
    heading: str
    read: Callable[[int], Json]


@dataclass(frozen=True, slots=True)
class Found:
    """The logs that there are now, and whether nothing more will be printed."""

    sources: list[LogSource]
    is_over: bool


class Printer:
    """Prints the new text of any number of logs, with a heading where another one begins."""

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}
        self._last: str | None = None

    @property
    def is_empty(self) -> bool:
        return self._last is None

    def print_new(self, source: LogSource) -> None:
        for chunk in self._chunks(source):
            if source.heading and source.key != self._last:
                click.echo(f"── {source.heading} ──")
            self._last = source.key
            if missing := chunk["num_missing_bytes"]:
                click.echo(f"\n── {missing} bytes are no longer kept ──")
            click.echo(chunk["text"], nl=False)

    def _chunks(self, source: LogSource) -> Iterator[Json]:
        while True:
            chunk = source.read(self._offsets.get(source.key, 0))
            self._offsets[source.key] = chunk["next_offset"]
            if not chunk["text"]:
                return
            yield chunk


def _print(printer: Printer, find: Callable[[], Found], *, follow: bool) -> None:
    until_s: float | None = None
    while True:
        found = find()
        for source in found.sources:
            printer.print_new(source)
        if not follow:
            return
        if found.is_over:
            until_s = until_s or time.monotonic() + SHIPPING_S
        if until_s is not None and time.monotonic() >= until_s:
            return
        time.sleep(POLL_S)


def _session_check(client: Client, job_id: str, session_id: str) -> None:
    if client.session_get(session_id)["job_id"] != job_id:
        raise CliError(f"session {session_id} is not one of job {job_id}", exit_code=2)


def _of_session(client: Client, session_id: str) -> Found:
    state = client.session_get(session_id)["state"]
    source = LogSource(session_id, "", functools.partial(client.session_log, session_id))
    return Found([source], is_over=state != SessionState.OPEN)


def _of_phases(client: Client, job_id: str, phase_id: str | None) -> Found:
    job = client.job_get(job_id)
    phases = client.job_phases(job_id)
    if phase_id is not None:
        phases = [phase for phase in phases if phase["id"] == phase_id]
        if not phases:
            raise CliError(f"phase {phase_id} is not one of job {job_id}", exit_code=2)
    have_ended = all(phase["ended_at"] is not None for phase in phases)
    is_stopped = phase_id is not None or job["state"] in STOPPED
    return Found([_of_phase(client, phase) for phase in phases], is_over=is_stopped and have_ended)


def _of_phase(client: Client, phase: Json) -> LogSource:
    heading = f"{phase['role']} on {phase['machine']}, {phase['leased_at']}, {phase['id']}"
    return LogSource(phase["id"], heading, functools.partial(client.phase_log, phase["id"]))
