"""`seamlessflow jobs logs` against a real web process: what it prints, when it ends, and its exit codes."""

from uuid import UUID

import msgspec
import pytest
from click.testing import CliRunner, Result
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from seamlessflow.cli import job_logs
from seamlessflow.cli.errors import CliError
from seamlessflow.cli.main import cli, exit_code_of
from seamlessflow.client import ApiError
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.trajectories.models import Session
from seamlessflow.core.protocol.worker import SessionLog, SessionLogs
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import (
    Cast,
    Worker,
    group_make,
    order_of,
    phase_make,
    worker_make,
    worker_post,
)

pytestmark = pytest.mark.django_db(transaction=True)


class World:
    """A job with agents at work on gamma, and one session."""

    def __init__(self, cast: Cast) -> None:
        self.job: Job = cast.job(is_running=True)
        self.gamma: Worker = worker_make("gamma", "agent")
        self.phase: Phase = phase_make(self.job, self.gamma.machine, Role.AGENT)
        now = timezone.now()
        self.session = Session.objects.create(
            id=new_id(), project_id=self.job.project_id, job=self.job, group=group_make(self.job, 0),
            month=now.date().replace(day=1), slot=0, key_digest=b"k", opened_at=now,
        )  # fmt: skip

    def session_prints(self, head: bytes, tail: bytes = b"", *, end: int) -> None:
        logs = SessionLogs(logs=[SessionLog(session_id=self.session.id, head=head, tail=tail, end=end)])
        credential = order_of(self.phase).credential
        assert worker_post("sessions/logs", msgspec.json.encode(logs), secret=credential).status_code == 204

    def phase_prints(self, phase: Phase, text: bytes) -> None:
        self.gamma.post(f"phases/{phase.id}/logs?stream=agent&offset=0", text)

    def run(self, *options: str) -> Result:
        command = ["jobs", "logs", show_id(IdKind.JOB, self.job.id), *options]
        return CliRunner().invoke(cli, command, standalone_mode=False)

    def refused(self, *options: str) -> tuple[int, str]:
        exception = self.run(*options).exception
        assert isinstance(exception, CliError | ApiError), exception
        return exit_code_of(exception), str(exception)


@pytest.fixture
def world(cast: Cast, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("SEAMLESSFLOW_WEB_URL", live_server.url)
    monkeypatch.setenv("SEAMLESSFLOW_TOKEN", cast.owner.secret)
    return World(cast)


def test_the_log_of_a_session_is_printed_as_it_is(world: World) -> None:
    world.session_prints(b"begin\n", b"end\n", end=1000)
    printed = world.run("--session", show_id(IdKind.SESSION, world.session.id))
    assert printed.stdout == "begin\n\n── 990 bytes are no longer kept ──\nend\n"


def test_the_logs_of_all_phases_follow_one_another(world: World) -> None:
    first, second = world.phase, phase_make(world.job, world.gamma.machine, Role.ROLLOUT)
    world.phase_prints(first, b"one\n")
    world.phase_prints(second, b"two\n")
    lines = world.run().stdout.splitlines()
    assert [lines[1], lines[3]] == ["one", "two"]
    assert lines[0].startswith("── agent on gamma, ")
    assert lines[2].endswith(f"{show_id(IdKind.PHASE, second.id)} ──")
    chosen = world.run("--phase", show_id(IdKind.PHASE, second.id)).stdout
    assert chosen.splitlines()[1:] == ["two"]


def test_a_job_that_printed_nothing_says_so_beside_its_output(world: World) -> None:
    printed = world.run()
    assert (printed.stdout, printed.stderr) == ("", f"{job_logs.NOTHING}\n")


def test_a_session_is_followed_until_it_has_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def more(_seconds: float) -> None:
        world.session_prints(b"begin\nend\n", end=10)
        Session.objects.filter(id=world.session.id).update(state="closed")

    monkeypatch.setattr("seamlessflow.cli.job_logs.time.sleep", more)
    monkeypatch.setattr(job_logs, "SHIPPING_S", 0.0)
    world.session_prints(b"begin\n", end=6)
    printed = world.run("--session", show_id(IdKind.SESSION, world.session.id), "--follow")
    assert printed.stdout == "begin\nend\n"


def test_a_wrong_identifier_is_refused(world: World, cast: Cast) -> None:
    absent = show_id(IdKind.SESSION, UUID(int=5))
    assert world.refused("--session", absent)[0] == 2
    assert world.refused("--session", "five")[0] == 2
    assert world.refused("--session", absent, "--phase", show_id(IdKind.PHASE, world.phase.id)) == (
        2,
        "--session and --phase exclude each other",
    )
    other = phase_make(cast.job(name="other"), worker_make("delta", "agent").machine, Role.AGENT)
    code, text = world.refused("--phase", show_id(IdKind.PHASE, other.id))
    assert (code, "is not one of job" in text) == (2, True)
