"""The supervisor as a process: its command line, its death, its lock, its doorbell."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
import psutil
import pytest
from celery import Celery

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.tags import Role
from tests.fakes.fake_control_plane import TOKEN, FakeControlPlane, endpoint_of, until
from tests.fixtures.processes import processes_of
from tests.fixtures.repository import ROOT
from tests.fixtures.services import ValkeyUrls


class Launcher:
    """Starts supervisors with a home under one folder, and leaves none behind."""

    def __init__(self, folder: Path, plane: FakeControlPlane) -> None:
        self.folder = folder
        self.plane = plane
        self._started: list[subprocess.Popen[str]] = []
        (folder / "token").write_text(TOKEN + "\n")
        # Takes the place of an engine's interpreter: answers the probe for vLLM, else drops `-m module`.
        engine_python = folder / "engine-python"
        script = (
            "#!/bin/sh",
            f'[ "$1" = -c ] && exec {sys.executable} "$@"',
            f"shift 2; cd {ROOT}",
            f'exec {sys.executable} -m tests.fakes.engine_process "$@"',
        )
        engine_python.write_text("\n".join(script) + "\n")
        engine_python.chmod(0o755)

    def start(self, *flags: str, name: str = "alpha", **environment: str) -> "subprocess.Popen[str]":
        environ = {key: value for key, value in os.environ.items() if not key.endswith("_URL")}
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "seamlessflow_workers.supervisor", "--name", name),
                *("--control-plane-url", self.plane.url, "--token-file", str(self.folder / "token")),
                *("--home", str(self.folder), "--engine-python", str(self.folder / "engine-python"), *flags),
            ],
            env=environ | {"PYTHONPATH": f"{ROOT}/platform:{ROOT}/workers"} | environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def stop(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()


@pytest.fixture
async def plane() -> AsyncIterator[FakeControlPlane]:
    plane = await FakeControlPlane.start()
    yield plane
    await plane.stop()


@pytest.fixture
def launcher(tmp_path: Path, plane: FakeControlPlane) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path, plane)
    yield launcher
    launcher.stop()


async def exit_status(process: "subprocess.Popen[str]", timeout_s: float) -> int:
    return await asyncio.to_thread(process.wait, timeout_s)


async def test_kill_leaves_no_process(
    launcher: Launcher, plane: FakeControlPlane, embedded_valkey: ValkeyUrls
) -> None:
    plane.tags = ["rollout", "agent"]
    plane.reside(Role.ROLLOUT)
    order = plane.order(Role.ROLLOUT)
    process = launcher.start(BROKER_URL=embedded_valkey.broker)
    await plane.until_state(order, PhaseState.ACTIVE)
    said_by_fork_server = launcher.folder / "machines" / "alpha" / "logs" / "fork_server.log"
    await until(
        lambda: said_by_fork_server.exists() and "imported" in said_by_fork_server.read_text(),
        what="the fork server is warm",
        timeout_s=30,
    )
    plane.change(order, is_draining=True)
    await plane.until_state(order, PhaseState.ENDED)
    plane.reside(Role.AGENT)
    plane.order(Role.AGENT)
    words = ("engine_process", "supervisor.doorbell", "process.fork_server", "workers.agents")
    await until(lambda: all(map(has_child(process), words)), what="all four are there")
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) == len(words)
    forked = next(child for child in children if "seamlessflow_workers.agents" in " ".join(child.cmdline()))
    assert forked.ppid() == process.pid
    # A title instead of arguments: it was never executed.
    assert b"-m seamlessflow_workers.agents" in Path(f"/proc/{forked.pid}/cmdline").read_bytes()
    process.kill()
    await until(lambda: not any(is_alive(child) for child in children), what="nothing is left")


async def test_sigterm_gives_requests_back_and_exits_in_time(
    launcher: Launcher, plane: FakeControlPlane
) -> None:
    plane.reside(Role.ROLLOUT)
    order = plane.order(Role.ROLLOUT)
    process = launcher.start()
    report = await plane.until_state(order, PhaseState.ACTIVE)
    async with aiohttp.ClientSession() as session:
        request = asyncio.create_task(
            generate(session, endpoint_of(report), order.front_token, str(order.job_id))
        )
        await until(lambda: plane.last(order).num_in_flight == 1, what="it is in flight")
        began_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert b'"finish_reason":"abort"' in (await request).replace(b" ", b"")
    assert await exit_status(process, 5) == 0
    assert time.monotonic() - began_s < 5
    assert plane.last(order).state is PhaseState.ENDED  # its last heartbeat said so
    assert processes_of(launcher.folder) == {}


async def generate(session: aiohttp.ClientSession, endpoint: str, token: str, job: str) -> bytes:
    async with session.post(
        f"{endpoint}/inference/v1/generate",
        json={"token_ids": [11], "sampling_params": {"max_tokens": 4000, "ignore_eos": True}},
        headers={
            "Authorization": f"Bearer {token}",
            "X-SeamlessFlow-Job": job,
            "X-SeamlessFlow-Policy-Version": "0",
        },
    ) as response:
        return await response.read()


async def test_a_second_supervisor_of_the_same_name_is_refused(
    launcher: Launcher, plane: FakeControlPlane
) -> None:
    launcher.start()
    await until(lambda: bool(plane.heartbeats), what="the first is heard")
    second = launcher.start()
    assert await exit_status(second, 10) == 1
    errors = said(second)
    assert errors.startswith("supervisor: a supervisor named 'alpha' already runs in ")
    assert errors.count("\n") == 1


async def test_children_are_bound_to_the_given_core(launcher: Launcher, plane: FakeControlPlane) -> None:
    core = max(os.sched_getaffinity(0))
    plane.reside(Role.ROLLOUT)
    order = plane.order(Role.ROLLOUT)
    process = launcher.start("--cores", f"{core},{core + 1000}")
    await plane.until_state(order, PhaseState.ACTIVE)
    engine = child_with(process, "engine_process").pid
    assert os.sched_getaffinity(engine) == {core}
    assert plane.heartbeats[0].capabilities is not None
    assert plane.heartbeats[0].capabilities.num_cores == 1
    assert plane.heartbeats[-1].capabilities is None


async def test_the_token_of_the_machine_is_not_given_to_children(
    launcher: Launcher, plane: FakeControlPlane
) -> None:
    plane.reside(Role.ROLLOUT)
    order = plane.order(Role.ROLLOUT)
    process = launcher.start(DATABASE_URL="postgresql://secret")
    await plane.until_state(order, PhaseState.ACTIVE)
    engine = child_with(process, "engine_process").pid
    environ = Path(f"/proc/{engine}/environ").read_bytes()
    assert b"OMP_WAIT_POLICY=PASSIVE" in environ
    assert b"postgresql://secret" not in environ
    assert TOKEN.encode() not in environ + Path(f"/proc/{engine}/cmdline").read_bytes()


async def test_a_doorbell_brings_the_next_heartbeat_forward_and_its_death_disturbs_nothing(
    launcher: Launcher, plane: FakeControlPlane, embedded_valkey: ValkeyUrls
) -> None:
    plane.interval_s = 60.0
    process = launcher.start(BROKER_URL=embedded_valkey.broker)
    await until(lambda: len(plane.heartbeats) == 2, what="the doorbell is there", timeout_s=30)
    took_s = min([await measured_doorbell(plane, embedded_valkey.broker) for _ in range(5)])
    print(f"celery send to the heartbeat's arrival: {took_s * 1e3:.1f} ms")

    child_with(process, "supervisor.doorbell").kill()
    num_heard = len(plane.heartbeats)
    await until(lambda: len(plane.heartbeats) > num_heard, what="the doorbell is back", timeout_s=30)
    await measured_doorbell(plane, embedded_valkey.broker)


async def measured_doorbell(plane: FakeControlPlane, broker_url: str) -> float:
    await asyncio.sleep(0.05)
    num_heard, began_s = len(plane.heartbeats), time.monotonic()
    await doorbell_send(broker_url)
    await until(lambda: len(plane.heartbeats) > num_heard, what="the doorbell was heard", timeout_s=30)
    return plane.arrivals_s[num_heard] - began_s


async def doorbell_send(broker_url: str) -> None:
    await asyncio.to_thread(_doorbell_send, broker_url)


def _doorbell_send(broker_url: str) -> None:
    with Celery(broker=broker_url) as app:
        app.send_task(
            "seamlessflow.doorbell",
            kwargs={"phase_id": "p", "fence": 1, "from_the_future": True},
            queue="machine.alpha",
            ignore_result=True,
        )


def child_with(process: "subprocess.Popen[str]", word: str) -> psutil.Process:
    """The supervisor's child whose command line holds `word`; ours alone are looked at."""
    children = psutil.Process(process.pid).children()
    return next(child for child in children if word in " ".join(child.cmdline()))


def has_child(process: "subprocess.Popen[str]") -> Callable[[str], bool]:
    lines = [command_line(child) for child in psutil.Process(process.pid).children()]
    return lambda word: any(word in line for line in lines)


def command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def is_alive(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    return process.stderr.read()


@pytest.mark.parametrize(
    "flags,words",
    [
        (("--cores", "x"), "--cores 'x' must be numbers and ranges"),
        (("--name", "Alpha Beta"), "--name 'Alpha Beta' must match"),
        (("--control-plane-url", "localhost:80"), "must begin with http:// or https://"),
        (("--token-file", "/nowhere/token"), "--token-file /nowhere/token: No such file or directory"),
    ],
)
async def test_a_setting_that_cannot_work_is_one_clear_line(
    launcher: Launcher, flags: tuple[str, ...], words: str
) -> None:
    process = launcher.start(*flags)
    assert await exit_status(process, 10) == 1
    errors = said(process)
    assert words in errors
    assert errors.count("\n") == 1


async def test_what_a_killed_supervisor_left_in_its_temporary_folder_goes_with_the_next(
    launcher: Launcher, plane: FakeControlPlane, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "t"
    elsewhere.mkdir()
    (elsewhere / "of-somebody-else").touch()

    def scratch() -> Path:
        (folder,) = elsewhere.glob("sf-*")
        return folder

    process = launcher.start(TMPDIR=str(elsewhere))
    await until(lambda: plane.heartbeats != [], what="a heartbeat")
    (scratch() / "vllm_dist_0").touch()
    assert scratch().stat().st_mode & 0o777 == 0o700
    process.kill()
    await exit_status(process, 20)
    boot_id = plane.heartbeats[0].boot_id

    process = launcher.start(TMPDIR=str(elsewhere))
    await until(lambda: plane.heartbeats[-1].boot_id != boot_id, what="a heartbeat of the next")
    assert not (scratch() / "vllm_dist_0").exists()
    process.terminate()

    assert await exit_status(process, 20) == 0
    assert [entry.name for entry in elsewhere.iterdir()] == ["of-somebody-else"]
