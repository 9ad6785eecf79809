"""Decisions around the processes of an installation: addresses, environments, ports, locks,
tokens."""

import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.cli.local.environment import Addresses, machine_environment, plane_environment
from seamlessflow.cli.local.machines import (
    LocalMachine,
    forget_tokens_of_other_database,
    missing_tokens,
    token_file,
    usable_core,
)
from seamlessflow.cli.local.ports import LOOPBACK, PREFERRED_WEB_PORT, claimed_port
from seamlessflow.cli.local.services import services_prepare
from seamlessflow.cli.local.state import (
    Home,
    InstallationRunning,
    RunInfo,
    UnsafeRuntimeFolder,
    private_folder,
)

US = (os.geteuid(), os.getegid())
ADDRESSES = Addresses("http://127.0.0.1:8470", "http://127.0.0.1:8471")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path).create()


def test_configured_servers_are_used_and_nothing_is_started(home: Home) -> None:
    named = {"DATABASE_URL": "postgresql://me@db/rl", "BROKER_URL": "redis://broker/0"}
    services = services_prepare(home, environ=named)
    assert services.specs == ()
    assert services.urls.database_url == "postgresql://me@db/rl"
    assert services.urls.events_url == services.urls.background_broker_url == "redis://broker/0"


def test_a_configured_broker_leaves_the_database_embedded(home: Home) -> None:
    services = services_prepare(
        home, environ={"BROKER_URL": "redis://broker/0", "EVENTS_URL": "redis://events/0"}
    )
    assert [spec.name for spec in services.specs] == ["postgres"]
    assert services.urls.events_url == "redis://events/0"


def test_machines_inherit_no_secret_of_the_planes(home: Home) -> None:
    urls = services_prepare(home, environ={}).urls
    shell = {
        "PATH": "/bin",
        "DATABASE_URL": "postgresql://me@db/rl",
        "SEAMLESSFLOW_SECRET_KEY": "s" * 40,
        "SEAMLESSFLOW_TOKEN": "of the person who starts it",
    }
    planes = plane_environment(home, urls, ADDRESSES, environ=shell)
    machines = machine_environment(home, urls, ADDRESSES, environ=shell)
    assert planes["SEAMLESSFLOW_SECRET_KEY"] == "s" * 40
    assert planes["DATABASE_URL"] == urls.database_url
    assert "s" * 40 not in machines.values()
    assert not {"DATABASE_URL", "EVENTS_URL", "BACKGROUND_BROKER_URL", "SEAMLESSFLOW_TOKEN"} & machines.keys()
    assert machines["PATH"] == "/bin"


def test_a_secret_is_created_once_and_readable_only_by_its_owner(home: Home) -> None:
    assert home.secret("secret-key") == home.secret("secret-key")
    assert len(home.secret("secret-key")) >= 32
    assert stat.S_IMODE((home.root / "secret-key.secret").stat().st_mode) == 0o600


def test_a_second_launcher_is_refused_while_the_first_runs(home: Home) -> None:
    run = RunInfo(
        os.getpid(), "2026-01-01T00:00:00+00:00", "http://w", "http://g", "postgresql://", "redis://"
    )
    with home.lock():
        home.write_run(run)
        assert home.read_run() == run
        with pytest.raises(InstallationRunning, match=rf"process {os.getpid()}"), home.lock():
            pytest.fail("two launchers hold one home")
    assert home.read_run() is None
    with home.lock():
        assert home.is_locked()


def test_the_run_file_of_a_killed_launcher_is_ignored(home: Home) -> None:
    home.run_file.write_text(
        json.dumps(
            dict.fromkeys(("started_at", "web_url", "gateway_url", "database_url", "broker_url"), "")
            | {"pid": 1}
        )
    )
    assert home.read_run() is None
    assert not home.request_stop(timeout_s=1)


def test_the_run_file_of_a_killed_launcher_is_not_mistaken_for_that_of_the_next(home: Home) -> None:
    stale = RunInfo(1, "2026-01-01T00:00:00+00:00", "http://w", "http://g", "postgresql://", "redis://")
    home.write_run(stale)
    with home.lock():
        assert not home.run_file.exists()
        home.write_run(stale)  # as if it were read between the kill and the new launcher's first look
        assert home.read_run() is None
        assert home.holder() == os.getpid()


def test_a_process_that_only_reads_the_home_does_not_prevent_a_start(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (home.root / "lock").open("a") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        assert not home.is_locked()
        monkeypatch.setattr(
            "seamlessflow.cli.local.state.time.sleep", lambda _: fcntl.flock(looker, fcntl.LOCK_UN)
        )
        with home.lock():
            assert home.is_locked()


def test_a_launcher_that_is_still_starting_can_be_stopped(home: Home) -> None:
    holding = (
        "import sys, time; from pathlib import Path; from seamlessflow.cli.local.state import Home\n"
        "with Home(Path(sys.argv[1])).lock(): print('held', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", holding, str(home.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "held\n"
        assert home.read_run() is None
        assert home.request_stop(timeout_s=60)
    assert launcher.returncode == -signal.SIGTERM


def test_logs_artifacts_and_addresses_are_readable_only_by_the_owner(home: Home) -> None:
    for folder in (home.logs, home.artifacts, home.machines):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    home.write_run(RunInfo(1, "", "", "", "postgresql://me:secret@db/rl", ""))
    assert stat.S_IMODE(home.run_file.stat().st_mode) == 0o600


def test_a_busy_port_is_skipped() -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        busy = listener.getsockname()[1]
        with claimed_port(busy) as port:
            assert busy < port < busy + 200


def test_a_port_on_which_nothing_listens_yet_is_given_to_one_launcher_only() -> None:
    with claimed_port(PREFERRED_WEB_PORT) as first:
        with claimed_port(first) as second:
            assert second > first
        code = f"from seamlessflow.cli.local.ports import claimed_port\nwith claimed_port({first}) as port: print(port)"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert int(other.stdout) > first


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    assert private_folder(tmp_path / "ours", owner=US) == private_folder(tmp_path / "ours", owner=US)
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    for name in ("open", "link"):
        with pytest.raises(UnsafeRuntimeFolder, match=name):
            private_folder(tmp_path / name, owner=US)


def test_a_machine_is_registered_once_per_database(home: Home) -> None:
    alpha = LocalMachine("alpha", ("rollout", "train"))
    path = token_file(home, alpha)
    commands = []
    for identity in ("database 1", "database 1", "database 2"):
        forget_tokens_of_other_database(home, identity=identity)
        missing = missing_tokens(home, [alpha])
        commands.append(missing.get(path))
        for file in missing:
            home.kept(file, f"token of {identity}")

    register = ("register_machine", "alpha", "--tags", "rollout,train")
    assert commands == [register, None, register]
    assert path.read_text() == "token of database 2"
    assert stat.S_IMODE(token_file(home, alpha).stat().st_mode) == 0o600


def test_a_machine_beyond_the_last_core_is_not_pinned() -> None:
    cores = sorted(os.sched_getaffinity(0))
    assert usable_core(0) == cores[0]
    assert usable_core(len(cores)) is None
    assert usable_core(None) is None


def test_the_launcher_can_be_imported_without_django_or_torch() -> None:
    heavy = {"django", "torch", "celery"}
    code = f"import sys, seamlessflow.cli.local.stack; print({heavy!r}.isdisjoint(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
