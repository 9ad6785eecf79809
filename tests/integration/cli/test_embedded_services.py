"""The embedded servers with real binaries: how they start, die and restart, and the environments
they must run in."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.fixtures.processes import processes_of, until
from tests.fixtures.repository import ROOT
from tests.fixtures.services import RunningServices, services_running

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to become another user or to be denied"
)
NO_NAMESPACES = (sys.executable, str(ROOT / "tests" / "fixtures" / "without_user_namespaces.py"))


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that other users can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="sf-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        assert processes_of(Path(folder)) == {}


def remember(services: RunningServices) -> None:
    with psycopg.connect(services.urls["DATABASE_URL"], autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (word text)")
        connection.execute("INSERT INTO kept VALUES ('answer')")


def recalls(services: RunningServices) -> bool:
    """Return whether the server answers and still has the row."""
    try:
        with psycopg.connect(services.urls["DATABASE_URL"]) as connection:
            return connection.execute("SELECT word FROM kept").fetchall() == [("answer",)]
    except psycopg.OperationalError:
        return False


def server_setting(services: RunningServices, name: str) -> str:
    with psycopg.connect(services.urls["DATABASE_URL"]) as connection:
        row = connection.execute(f"SHOW {name}").fetchone()
    assert row is not None
    return str(row[0])


def broker(services: RunningServices) -> "redis.Redis":
    return redis.Redis.from_url(services.urls["EVENTS_URL"])


def postmaster_pid(home: Path) -> int:
    return int((home / "postgres" / "postmaster.pid").read_text().split()[0])


def test_data_survives_a_restart_and_nothing_runs_in_between(home: Path) -> None:
    with services_running(home) as services:
        remember(services)
        broker(services).set("word", "answer")
    assert processes_of(home) == {}
    with services_running(home) as services:
        assert recalls(services)
        assert broker(services).get("word") == b"answer"


def test_only_private_unix_sockets_are_opened(home: Path) -> None:
    with services_running(home) as services:
        assert server_setting(services, "listen_addresses") == ""
        assert broker(services).config_get("port") == {"port": "0"}
        assert broker(services).config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        for folder in (home / "run", home / "run" / "postgres", home / "postgres"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_second_launcher_names_the_running_one_and_changes_nothing(home: Path) -> None:
    with services_running(home) as services:
        remember(services)
        before = processes_of(home)
        second = subprocess.run(
            [sys.executable, "-m", "seamlessflow.cli.local.dev_services", "--home", str(home)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "platform")},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert f"already running in {home} (process {services.process.pid})" in second.stderr
        assert f"DATABASE_URL={services.urls['DATABASE_URL']}\n" in second.stdout
        assert processes_of(home).keys() <= before.keys()
        assert recalls(services)


def test_a_killed_launcher_ends_both_servers_and_the_next_one_finds_the_data(home: Path) -> None:
    with services_running(home) as services:
        remember(services)
        services.process.kill()
        until(lambda: processes_of(home) == {}, what="no process of the killed launcher")
    with services_running(home) as services:
        assert recalls(services)


def test_the_next_launcher_does_not_wait_until_a_killed_one_is_gone(home: Path) -> None:
    with services_running(home) as services:
        remember(services)
        services.process.kill()
        services.process.wait()
        # The servers of the first are still shutting down here.
        with services_running(home) as successor:
            assert recalls(successor)


def test_a_killed_postmaster_is_restarted_with_all_committed_rows(home: Path) -> None:
    with services_running(home) as services:
        remember(services)
        killed = postmaster_pid(home)
        os.kill(killed, signal.SIGKILL)
        until(
            lambda: recalls(services) and postmaster_pid(home) != killed,
            what="another postmaster with the row",
        )


def test_a_killed_broker_is_restarted_with_its_messages(home: Path) -> None:
    with services_running(home) as services:
        client = broker(services)
        client.rpush("queue", *range(1000))
        client.config_set("appendfsync", "always")
        client.set("flushed", "yes")
        os.kill(int((home / "valkey" / "valkey.pid").read_text()), signal.SIGKILL)

        def answers() -> bool:
            try:
                return bool(client.llen("queue") == 1000)
            except redis.RedisError:
                return False

        until(answers, what="the broker with its queue")


def test_a_pid_file_that_names_an_unrelated_process_does_not_prevent_the_start(home: Path) -> None:
    with services_running(home) as services:
        remember(services)
        services.process.kill()
        until(lambda: processes_of(home) == {}, what="no process of the killed launcher")
    # As after a reboot: the number noted in the file belongs to somebody else now.
    (home / "postgres" / "postmaster.pid").write_text(f"{os.getppid()}\n{home / 'postgres'}\n")
    with services_running(home) as services:
        assert recalls(services)


def test_an_interrupted_first_start_leaves_no_half_made_database(home: Path) -> None:
    half_made = home / "postgres.init"
    half_made.mkdir()
    (half_made / "PG_VERSION").write_text("18\n")
    with services_running(home) as services:
        remember(services)
        assert recalls(services)
    assert not half_made.exists()


def test_a_home_with_a_long_path_gets_short_socket_paths(home: Path) -> None:
    deep = home / ("a-folder-with-a-long-name-" * 3) / ("and-another-one-below-it-" * 3)
    with services_running(deep) as services:
        remember(services)
        assert recalls(services)
        assert str(deep) not in services.urls["DATABASE_URL"]
        socket_dir = Path(services.urls["DATABASE_URL"].partition("host=")[2])
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
    assert not socket_dir.parent.exists()


@needs_root
def test_root_without_user_namespaces_runs_the_server_as_an_unprivileged_user(home: Path) -> None:
    with services_running(home, under=NO_NAMESPACES) as services:
        remember(services)
        assert Path(f"/proc/{postmaster_pid(home)}").stat().st_uid != 0
    # The same data serves both ways of running.
    with services_running(home) as services:
        assert recalls(services)
        assert Path(f"/proc/{postmaster_pid(home)}").stat().st_uid == 0
    with services_running(home, under=NO_NAMESPACES) as services:
        assert recalls(services)


@needs_root
def test_root_without_user_namespaces_in_a_private_home_keeps_the_database_in_a_system_folder(
    home: Path,
) -> None:
    private = home / "private"
    private.mkdir(mode=0o700)
    with services_running(private / "sf") as services:
        remember(services)
    with services_running(private / "sf", under=NO_NAMESPACES) as services:
        assert recalls(services)
        with psycopg.connect(services.urls["DATABASE_URL"]) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
        assert row is not None
        data_dir = Path(row[0])
        assert data_dir.is_relative_to("/var/lib")
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    with services_running(private / "sf") as services:
        assert recalls(services)
    shutil.rmtree(data_dir.parent)


@needs_root
def test_an_ordinary_user_needs_nothing_special(home: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    command = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    runs = subprocess.run(
        [*command, sys.executable, "-c", "import redis.asyncio"], capture_output=True, check=False
    )
    if runs.returncode != 0:
        # This Python lies in root's home: grant the right to read it, and no other.
        command += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    with services_running(home, under=tuple(command)) as services:
        remember(services)
        assert recalls(services)
        assert Path(f"/proc/{postmaster_pid(home)}").stat().st_uid == nobody.pw_uid


@needs_root
def test_small_shared_memory_makes_the_server_use_files(home: Path) -> None:
    mounted = 'mount -t tmpfs -o size=1m none /dev/shm && exec "$0" "$@"'
    with services_running(home, under=("unshare", "--mount", "sh", "-c", mounted)) as services:
        assert server_setting(services, "dynamic_shared_memory_type") == "mmap"
        with psycopg.connect(services.urls["DATABASE_URL"]) as connection:
            connection.execute("SET max_parallel_workers_per_gather = 2; SET debug_parallel_query = on")
            row = connection.execute("SELECT count(*) FROM generate_series(1, 200000)").fetchone()
        assert row == (200000,)
