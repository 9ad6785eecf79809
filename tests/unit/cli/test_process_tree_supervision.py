"""Children of a process tree: restarted when they die, stopped in order, never left behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seamlessflow.cli.local.process_tree import (
    CommandFailed,
    ProcessDidNotStart,
    ProcessSpec,
    ProcessState,
    ProcessTree,
)
from tests.fixtures.processes import processes_of, until
from tests.fixtures.repository import ROOT

# Each program works in its test's folder: that is how the test finds what is left of it.
SLEEPER = "import time; time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEPER!r}])"
LAUNCHER = """
import asyncio, signal, sys
from pathlib import Path
from tests.unit.cli.test_process_tree_supervision import PARENT, program
from seamlessflow.cli.local.process_tree import ProcessTree

async def main():
    folder = Path(sys.argv[1])
    async with ProcessTree(log_dir=folder / "logs") as tree:
        await tree.start(program("first", folder), program("second", folder))
        print("up", flush=True)
        await asyncio.Event().wait()

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background hands down that it is ignored
asyncio.run(main())
"""


def program(name: str, folder: Path, code: str = SLEEPER, *, stop_timeout_s: float = 5.0) -> ProcessSpec:
    command = (sys.executable, "-c", code)
    return ProcessSpec(
        name=name, command=command, env=dict(os.environ), cwd=folder, stop_timeout_s=stop_timeout_s
    )


async def eventually(condition: Callable[[], bool], *, what: str) -> None:
    """Like `until`, for conditions that the loop's own tasks bring about."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for happens outside the loop
            await asyncio.sleep(0.02)
    assert condition(), what


async def test_a_child_that_dies_is_restarted_and_counted(tmp_path: Path) -> None:
    async with ProcessTree(log_dir=tmp_path / "logs") as tree:
        await tree.start(program("worker", tmp_path))
        (worker,) = tree.processes
        first_pid = worker.pid
        assert first_pid is not None
        os.kill(first_pid, signal.SIGKILL)
        await eventually(lambda: worker.pid not in (None, first_pid), what="another process")
        assert (worker.num_restarts, worker.state) == (1, ProcessState.READY)


async def test_children_end_in_the_reverse_order_of_their_start(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    code = (
        "import signal, sys, time\n"
        "def end(*_):\n    open({journal!r}, 'a').write({name!r} + ' '); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); open({name!r}, 'w').close(); time.sleep(600)"
    )
    async with ProcessTree(log_dir=tmp_path / "logs") as tree:
        for name in ("database", "web", "machine"):
            await tree.start(program(name, tmp_path, code.format(journal=str(journal), name=name)))
            await eventually((tmp_path / name).exists, what=f"{name} is up")
    assert journal.read_text().split() == ["machine", "web", "database"]
    assert processes_of(tmp_path) == {}


async def test_a_child_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    async with ProcessTree(log_dir=tmp_path / "logs") as tree:
        await tree.start(program("deaf", tmp_path, DEAF, stop_timeout_s=0.2))
        log = tmp_path / "logs" / "deaf.log"
        await eventually(lambda: "deaf" in log.read_text(), what="it ignores the signal")
    assert processes_of(tmp_path) == {}


async def test_grandchildren_end_with_their_parent(tmp_path: Path) -> None:
    async with ProcessTree(log_dir=tmp_path / "logs") as tree:
        await tree.start(program("parent", tmp_path, PARENT))
        await eventually(lambda: len(processes_of(tmp_path)) == 2, what="parent and child")
    assert processes_of(tmp_path) == {}


async def test_a_program_that_cannot_start_is_reported_with_its_last_output(tmp_path: Path) -> None:
    async with ProcessTree(log_dir=tmp_path / "logs") as tree:
        with pytest.raises(
            ProcessDidNotStart, match=r"^web ended with status 3 while starting: no such port"
        ):
            await tree.start(
                ProcessSpec(
                    name="web",
                    command=(sys.executable, "-c", "print('no such port', flush=True); raise SystemExit(3)"),
                    env=dict(os.environ),
                    ready=never_ready,
                )
            )


async def never_ready() -> bool:
    return False


async def test_a_program_that_does_not_answer_in_time_is_killed_and_reported(tmp_path: Path) -> None:
    spec = ProcessSpec(
        name="web",
        command=(sys.executable, "-c", SLEEPER),
        env=dict(os.environ),
        cwd=tmp_path,
        ready=never_ready,
        ready_timeout_s=0.2,
    )
    async with ProcessTree(log_dir=tmp_path / "logs") as tree:
        with pytest.raises(ProcessDidNotStart, match=r"web did not answer within 0.2 s"):
            await tree.start(spec)
        assert processes_of(tmp_path) == {}


async def test_a_command_that_fails_is_reported_with_its_last_line(tmp_path: Path) -> None:
    failing = program("migrate", tmp_path, "import sys; sys.exit('no such table')")
    async with ProcessTree(log_dir=tmp_path / "logs") as tree:
        with pytest.raises(CommandFailed, match="migrate ended with status 1: no such table"):
            await tree.run_once(failing)
        assert await tree.run_once(program("token", tmp_path, "print('abc')")) == "abc\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_launcher_leaves_nothing_behind_however_it_ends(tmp_path: Path, number: signal.Signals) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert launcher.stdout is not None
    with launcher, launcher.stdout:
        assert launcher.stdout.readline() == b"up\n"
        # The launcher names the folder too; a child that is only being executed has no command line yet.
        until(lambda: len(processes_of(tmp_path)) == 3, what="the launcher and its children are there")
        launcher.send_signal(number)
        launcher.wait(timeout=20)
    until(lambda: processes_of(tmp_path) == {}, what="no child of the launcher")
