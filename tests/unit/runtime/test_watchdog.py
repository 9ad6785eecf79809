"""A process with a blocked loop ends itself; one that was merely not scheduled does not. Tasks do
not die silently."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from seamlessflow.runtime.ending import EXIT_STATUS
from seamlessflow.runtime.liveness import Liveness
from seamlessflow.runtime.tasks import task_supervised, thread_supervised
from seamlessflow.runtime.watchdog import Watchdog
from tests.fixtures.repository import ROOT

LIMIT_S = 2
PATIENCE_S = 60.0
LOOP = f"""
import asyncio, logging, re, sys, time
from seamlessflow.runtime.watchdog import Watchdog

async def main():
    Watchdog("the loop", limit_s={LIMIT_S}).watch_loop(asyncio.get_running_loop())
    print("up", flush=True)
    while True:
        await asyncio.sleep(0.05)
        match sys.argv[1]:
            case "sleep": time.sleep(600)
            case "loop": [1 for _ in iter(int, 1)]
            case "regex": re.match(r"(a|a)+$", "a" * 200 + "b")

asyncio.run(main())
"""


@contextmanager
def looping(fault: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, fault],
        env={"PYTHONPATH": str(ROOT / "platform")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "fault,status", [("sleep", EXIT_STATUS), ("loop", EXIT_STATUS), ("regex", -signal.SIGPROF)]
)
def test_a_process_with_a_blocked_loop_ends_and_says_where_it_was_blocked(fault: str, status: int) -> None:
    with looping(fault) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == status, errors
        assert "in main" in errors  # the traceback of the main thread


def test_a_stopped_process_is_not_mistaken_for_a_blocked_one() -> None:
    with looping("none") as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(3 * LIMIT_S)
        process.send_signal(signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2 * LIMIT_S)


async def test_a_task_that_ends_by_itself_ends_the_process_and_a_cancelled_one_does_not() -> None:
    ends: list[str] = []

    async def dies() -> None:
        raise LookupError("gone")

    async def returns() -> None:
        return

    async def stays() -> None:
        await asyncio.Event().wait()

    tasks = [task_supervised(work(), name=work.__name__, end=ends.append) for work in (dies, returns, stays)]
    tasks[2].get_loop().call_later(0.05, tasks[2].cancel)
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    assert [end.split(" (")[0] for end in ends] == ["the task dies ended", "the task returns ended"]
    status, body = Liveness(Watchdog("a loop", limit_s=0), lambda: tasks[:1]).answer()
    assert status == 503
    assert b'"dead_tasks": ["dies"]' in body


async def test_a_task_that_may_return_ends_the_process_only_by_an_error() -> None:
    ends: list[str] = []

    async def returns() -> None:
        return

    async def dies() -> None:
        raise LookupError("gone")

    tasks = [
        task_supervised(work(), name=work.__name__, may_return=True, end=ends.append)
        for work in (returns, dies)
    ]
    await asyncio.wait(tasks)
    await asyncio.sleep(0)
    assert ends == ["the task dies ended (LookupError('gone'))"]


def test_a_thread_that_dies_ends_the_process_and_one_that_returns_does_not() -> None:
    ends: list[str] = []
    for work in (lambda: None, lambda: [][1]):
        thread_supervised(work, name="worker", end=ends.append).join()
    assert ends == ["the thread worker ended (IndexError('list index out of range'))"]
