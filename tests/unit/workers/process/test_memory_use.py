"""A process that takes more memory than it may is killed with its descendants, and the reason names the limit."""

import asyncio
import os
import signal
import sys

import pytest

from seamlessflow.core.lifecycle.phases import FailureCause
from seamlessflow_workers.phases.watched import ChildFailure, WatchedProcess
from seamlessflow_workers.process.child import ChildCommand
from seamlessflow_workers.process.memory_use import memory_limit_bytes, tree_memory_bytes

MIB = 1 << 20
GREEDY = "import time; kept = bytearray(b'x') * (200 << 20); print('has it', flush=True); time.sleep(60)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {GREEDY!r}])"


class Lines:
    last_line = ""

    def write(self, chunk: bytes) -> None:
        self.last_line = chunk.decode().strip()


async def until_killed(code: str, *, limit_bytes: int | None) -> str:
    """Return why the process ended."""
    process = WatchedProcess(
        "the engine", silence_limit_s=60.0, ask_for_sign=lambda: None, memory_limit_bytes=limit_bytes
    )
    command = ChildCommand((sys.executable, "-c", code))
    await process.spawn(command, cores=frozenset({0}), log=Lines(), fork_server=None)
    try:
        with pytest.raises(ChildFailure) as failure:
            await process.load(lambda: asyncio.sleep(50))
    finally:
        await process.stop()
    assert failure.value.cause is FailureCause.WORK
    return str(failure.value)


async def test_memory_of_a_descendant_is_held_against_the_limit_and_names_it() -> None:
    assert await until_killed(PARENT, limit_bytes=170 * MIB) == (
        "the engine was killed, because it used 0.2 GiB of memory; SEAMLESSFLOW_MEMORY_SHARE of its machine allows "
        "0.2 GiB"
    )


async def test_a_process_within_its_limit_ends_by_itself() -> None:
    assert await until_killed("raise SystemExit(7)", limit_bytes=1 << 40) == "the engine exited with code 7"


async def test_what_a_process_and_its_descendants_use_is_counted() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        assert 200 * MIB <= tree_memory_bytes(process.pid) <= 260 * MIB
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    assert tree_memory_bytes(process.pid) == 0


def test_a_share_is_of_what_the_host_or_the_container_has() -> None:
    assert 0 < memory_limit_bytes(0.5) * 2 <= memory_limit_bytes(1.0) + 1
