"""The whole installation on one host: it starts, keeps its secrets where they belong, and leaves
nothing behind."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seamlessflow.cli.local.state import Home
from tests.fixtures.processes import pid_by_words, processes_of, until
from tests.fixtures.repository import ROOT

LAUNCHER = """
import asyncio, sys
from pathlib import Path
from seamlessflow.cli.local.machines import LocalMachine
from seamlessflow.cli.local.process_tree import run_to_end
from seamlessflow.cli.local.stack import running_stack
from seamlessflow.cli.local.state import Home

async def main():
    machines = [LocalMachine("alpha", ("rollout", "train"), core=0), LocalMachine("beta", ("rollout",), core=99)]
    async with running_stack(Home(Path(sys.argv[1])), machines):
        print("up", flush=True)
        await asyncio.Event().wait()

run_to_end(main())
"""
SECRETS_OF_THE_PLANES = {"DATABASE_URL", "EVENTS_URL", "BACKGROUND_BROKER_URL", "SEAMLESSFLOW_SECRET_KEY"}


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    """One installation for all tests, each of which starts and ends it: only a first start makes tables and tokens."""
    with tempfile.TemporaryDirectory(prefix="sf-test-") as folder:
        yield Home(Path(folder))


@pytest.fixture(autouse=True)
def _all_ended(home: Home) -> Iterator[None]:
    yield
    until(lambda: processes_of(home.root) == {}, what="no process of the installation")


@contextmanager
def launched(home: Home) -> Iterator["subprocess.Popen[str]"]:
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_URL")}
    path = os.pathsep.join([str(ROOT / "platform"), str(ROOT / "workers")])
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(home.root)],
        env=environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        assert launcher.stdout is not None
        try:
            assert launcher.stdout.readline() == "up\n"
            yield launcher
        finally:
            launcher.send_signal(signal.SIGTERM)


def environment_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


@pytest.mark.slow
def test_an_installation_starts_keeps_secrets_from_machines_and_ends_completely(home: Home) -> None:
    with launched(home) as launcher:
        run = home.read_run()
        assert run is not None
        assert run.pid == launcher.pid
        for url in (run.web_url, run.gateway_url):
            with urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
                assert answer.status == 200
        supervisor = pid_by_words(home.root, "seamlessflow_workers.supervisor", "--name alpha")
        assert environment_of(supervisor).keys().isdisjoint(SECRETS_OF_THE_PLANES)
        assert environment_of(supervisor)["BROKER_URL"] == run.broker_url
        assert environment_of(pid_by_words(home.root, "uvicorn")).keys() >= SECRETS_OF_THE_PLANES
        for token in home.machines.glob("*.token"):
            assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert home.request_stop(timeout_s=30)
        launcher.wait(timeout=20)
    assert launcher.returncode == 0
    assert processes_of(home.root) == {}
    assert home.read_run() is None


@pytest.mark.slow
def test_a_second_start_is_fast_and_keeps_tokens_and_tables(home: Home) -> None:
    if not (home.root / "migrated").exists():
        with launched(home):
            pass
    tokens = tokens_of(home)
    assert tokens.keys() == {"alpha.token", "beta.token", "cli.token"}
    migrated_at = (home.root / "migrated").stat().st_mtime_ns
    log_size = (home.logs / "migrate.log").stat().st_size
    started_at = time.monotonic()
    with launched(home):
        assert time.monotonic() - started_at < 30  # about 4 s on two idle cores
        assert tokens_of(home) == tokens
        assert (home.root / "migrated").stat().st_mtime_ns == migrated_at
        assert (home.logs / "migrate.log").stat().st_size == log_size


def tokens_of(home: Home) -> dict[str, str]:
    return {path.name: path.read_text() for path in home.root.rglob("*.token")}


@pytest.mark.slow
def test_a_killed_installation_leaves_nothing_running_and_a_killed_plane_is_restarted(home: Home) -> None:
    with launched(home) as launcher:
        killed = pid_by_words(home.root, "uvicorn")
        os.kill(killed, signal.SIGKILL)
        until(lambda: web_answers(home), what="the web answers again")
        assert pid_by_words(home.root, "uvicorn") != killed
        launcher.kill()
        until(lambda: processes_of(home.root) == {}, what="no process of the killed installation")
        assert home.read_run() is None


def web_answers(home: Home) -> bool:
    run = json.loads(home.run_file.read_text())
    try:
        with urllib.request.urlopen(f"{run['web_url']}/healthz", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
