"""`run_scheduler` as a process: it leads, a second one stands by and takes over, SIGTERM ends it,
and it survives outages."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.fixtures.repository import ROOT
from tests.fixtures.services import ValkeyUrls

DEADLINE_S = 40.0


@pytest.fixture
def environ(fresh_database_url: str, embedded_valkey: ValkeyUrls, tmp_path: Path) -> dict[str, str]:
    environ = os.environ | {
        "DATABASE_URL": fresh_database_url,
        "BROKER_URL": embedded_valkey.broker,
        "EVENTS_URL": embedded_valkey.events,
        "SEAMLESSFLOW_SECRET_KEY": "for-tests-only-" + "0123456789abcdef" * 2,
        "ARTIFACT_ROOT": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "seamlessflow.control_plane.settings",
        "PYTHONPATH": str(ROOT / "platform"),
    }
    subprocess.run([sys.executable, "-m", "django", "migrate", "-v0"], env=environ, check=True)
    return environ


class Process:
    def __init__(self, environ: dict[str, str], log: Path) -> None:
        self.log = log
        self.alive_file = log.with_suffix(".alive")
        command = [sys.executable, "-m", "django", "run_scheduler", "--alive-file", str(self.alive_file)]
        with log.open("w") as stderr:
            self.process = subprocess.Popen(command, env=environ, stderr=stderr)

    def says(self, text: str, *, times: int = 1) -> bool:
        return self.log.read_text().count(text) >= times


@pytest.fixture
def start(environ: dict[str, str], tmp_path: Path) -> Iterator[Callable[[str], Process]]:
    started: list[Process] = []

    def begin(name: str) -> Process:
        started.append(Process(environ, tmp_path / f"{name}.log"))
        return started[-1]

    yield begin
    for process in started:
        process.process.kill()
        process.process.wait()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)


def test_a_stand_by_takes_over_and_survives_outages(
    start: Callable[[str], Process], fresh_database_url: str
) -> None:
    first = start("first")
    wait_for(lambda: first.says("this process leads"), "leading")
    second = start("second")
    wait_for(lambda: second.says("standing by"), "standing by")
    first.process.kill()
    wait_for(lambda: second.says("this process leads"), "taking over")

    with psycopg.connect(fresh_database_url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    wait_for(
        lambda: second.says("this process leads", times=2), "leading again after its connections were cut"
    )
    assert second.process.poll() is None

    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(10) == 0
    assert not second.says("Traceback")


def test_leader_and_stand_by_show_that_they_run_and_a_stopped_one_does_not(
    start: Callable[[str], Process],
) -> None:
    leader, stand_by = start("one"), start("two")
    both = (leader.alive_file, stand_by.alive_file)
    wait_for(lambda: all(path.exists() for path in both), "a first turn of both")

    def is_touched_again(process: Process) -> bool:
        before = process.alive_file.stat().st_mtime_ns
        deadline_at = time.monotonic() + 5.0
        while process.alive_file.stat().st_mtime_ns == before:
            if time.monotonic() > deadline_at:
                return False
            time.sleep(0.05)
        return True

    assert is_touched_again(leader)
    assert is_touched_again(stand_by)
    leader.process.send_signal(signal.SIGSTOP)
    wait_for(lambda: psutil.Process(leader.process.pid).status() == psutil.STATUS_STOPPED, "the stop")
    assert not is_touched_again(leader)
    leader.process.send_signal(signal.SIGCONT)
    assert is_touched_again(leader)
