"""The logs of sessions: reported by a runner with its phase's credential, read by members of the job's project."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.http import HttpResponse
from django.utils import timezone

from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.storage.services.retention import retention_apply
from seamlessflow.control_plane.telemetry.models import LogChunk
from seamlessflow.control_plane.trajectories.models import Session
from seamlessflow.core.protocol.worker import SessionLog, SessionLogs
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import (
    Cast,
    Person,
    group_make,
    order_of,
    phase_make,
    worker_make,
    worker_post,
)


def session_make(job: Job, *, index: int = 0, state: str = "open") -> Session:
    now = timezone.now()
    return Session.objects.create(
        id=new_id(), project_id=job.project_id, job=job, group=group_make(job, index), month=now.date().replace(day=1),
        slot=0, state=state, key_digest=new_id().bytes, opened_at=now,
    )  # fmt: skip


class World:
    """A job with agents at work, and one session."""

    def __init__(self, cast: Cast, *, state: str = "open") -> None:
        self.job = cast.job(is_running=True)
        phase = phase_make(self.job, worker_make("gamma", "agent").machine, Role.AGENT)
        self.credential = order_of(phase).credential
        self.session = session_make(self.job, state=state)

    def report(
        self, session: Session, head: bytes, tail: bytes = b"", *, end: int | None = None
    ) -> HttpResponse:
        size = len(head) + len(tail)
        log = SessionLog(session_id=session.id, head=head, tail=tail, end=size if end is None else end)
        return worker_post(
            "sessions/logs", msgspec.json.encode(SessionLogs(logs=[log])), secret=self.credential
        )


@pytest.fixture
def world(cast: Cast) -> World:
    return World(cast)


def read(person: Person, session: Session, query: str = "") -> tuple[int, dict[str, Any]]:
    answer = person.call("GET", f"sessions/{show_id(IdKind.SESSION, session.id)}/logs{query}")
    return answer.status_code, json.loads(answer.content)


def test_the_log_of_a_session_grows_and_old_reports_change_nothing(cast: Cast, world: World) -> None:
    for said in (b"step 1\n", b"step 1\nstep 2\n", b"step 1\n", b"step 1\nstep 2\n"):
        assert world.report(world.session, said).status_code == 204
    status, part = read(cast.member, world.session)
    assert (status, part["text"], part["end"], part["truncated"]) == (200, "step 1\nstep 2\n", 14, False)
    assert read(cast.member, world.session, "?offset=7")[1]["text"] == "step 2\n"
    assert LogChunk.objects.count() == 1


def test_a_long_log_says_what_is_missing(cast: Cast, world: World) -> None:
    world.report(world.session, b"begin\n", b"end\n", end=1000)
    first = read(cast.member, world.session)[1]
    assert (first["text"], first["next_offset"], first["truncated"]) == ("begin\n", 6, True)
    rest = read(cast.member, world.session, "?offset=6")[1]
    assert (rest["text"], rest["num_missing_bytes"], rest["truncated"]) == ("end\n", 990, False)


def test_a_session_that_printed_nothing_has_an_empty_log(cast: Cast, world: World) -> None:
    status, part = read(cast.member, world.session)
    assert (status, part["text"], part["end"]) == (200, "", 0)


def test_only_members_of_the_project_read_a_log(cast: Cast, world: World) -> None:
    world.report(world.session, b"secret\n")
    assert read(cast.outsider, world.session)[0] == 404


def test_a_runner_writes_only_sessions_of_its_own_job(cast: Cast, world: World) -> None:
    other = session_make(cast.job(is_running=True, name="other"))
    assert world.report(other, b"forged\n").status_code == 204
    assert read(cast.member, other)[1]["text"] == ""
    assert worker_post("sessions/logs", b"{}", secret="sfp_wrong").status_code == 401


@pytest.mark.parametrize(
    "head, end", [(b"more than was printed", 3), (b"x" * (1 << 20) + b"y", 1 << 21), (b"x", 2**63)]
)
def test_a_log_that_is_not_possible_is_refused(world: World, head: bytes, end: int) -> None:
    answer = world.report(world.session, head, end=end)
    assert answer.status_code == 400
    assert "logs" in json.loads(answer.content)["detail"]


def test_logs_of_sessions_are_no_streams_of_their_phase(cast: Cast, world: World) -> None:
    world.report(world.session, b"hello\n")
    phase = LogChunk.objects.get().phase_id
    part = json.loads(cast.member.call("GET", f"phases/{show_id(IdKind.PHASE, phase)}/logs").content)
    assert (part["streams"], part["text"]) == ([], "")


def test_a_failed_session_names_the_last_line_that_it_printed(cast: Cast) -> None:
    world = World(cast, state="failed")
    world.report(world.session, b"Traceback:\n", b"  File\nFileNotFoundError: agent.py\n\n", end=100)
    group = show_id(IdKind.GROUP, world.session.group_id)
    shown = json.loads(cast.member.call("GET", f"groups/{group}").content)["sessions"]
    assert [one["last_line"] for one in shown] == ["FileNotFoundError: agent.py"]
    one = cast.member.call("GET", f"sessions/{show_id(IdKind.SESSION, world.session.id)}")
    assert json.loads(one.content)["last_line"] == "FileNotFoundError: agent.py"


def test_a_session_that_did_not_fail_names_no_last_line(cast: Cast, world: World) -> None:
    world.report(world.session, b"all is well\n")
    one = cast.member.call("GET", f"sessions/{show_id(IdKind.SESSION, world.session.id)}")
    assert json.loads(one.content)["last_line"] is None


def test_logs_of_sessions_are_deleted_with_the_logs_of_their_job(cast: Cast, world: World) -> None:
    world.report(world.session, b"old\n")
    Phase.objects.filter(job=world.job).update(state="ended")
    ended_at = timezone.now() - timedelta(days=31)
    Job.objects.filter(id=world.job.id).update(state="completed", ended_at=ended_at, created_at=ended_at)
    retention_apply(now=timezone.now())
    assert not LogChunk.objects.exists()
    status, problem = read(cast.member, world.session)
    assert (status, problem["status"]) == (410, 410)
    assert "were deleted" in problem["detail"]


def test_a_job_of_many_sessions_keeps_the_logs_of_the_newest(cast: Cast, world: World) -> None:
    sessions = [session_make(world.job, index=index) for index in range(1, 5)]
    for session in sessions:
        world.report(session, b"x" * (400 << 10))
    policy = cast.owner.call(
        "PATCH",
        f"storage/policy?project={cast.owner.project.slug}",
        {"settings": {"session_logs_mib": 1}, "reset": []},
    )
    assert policy.status_code == 200, policy.content
    retention_apply(now=timezone.now())
    kept = set(LogChunk.objects.values_list("session_id", flat=True))
    assert kept == {session.id for session in sessions[2:]}
