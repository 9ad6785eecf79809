"""The fork server with real processes: what it forks is a child of the supervisor like any other, whatever dies."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from seamlessflow.core.job_spec import EngineKind
from seamlessflow_workers.process.child import ChildCommand, ChildProcess
from seamlessflow_workers.process.fork_server.client import PROGRAMS, ForkServer
from seamlessflow_workers.process.logs import OutputLog
from seamlessflow_workers.process.settings import EngineFinding
from seamlessflow_workers.supervisor.config import SupervisorConfig
from tests.fakes.fake_control_plane import until
from tests.fixtures.repository import ROOT

PROGRAM = "tests.fakes.forked"
IMPORT_TIMEOUT_S = 60.0


@dataclass
class Born:
    process: ChildProcess
    control: socket.socket
    facts: dict[str, Any]
    theirs: int  # the number of its end of the socket

    async def told(self, word: str) -> str:
        """How it ended after `word`."""
        self.control.send(word.encode())
        return await self.process.wait()


@dataclass
class Stage:
    fork_server: ForkServer
    config: SupervisorConfig
    folder: Path
    leaving: ExitStack

    def log(self) -> OutputLog:
        return self.leaving.enter_context(closing(OutputLog(self.folder, role="child")))

    def command(self, theirs: socket.socket) -> ChildCommand:
        number = theirs.fileno()
        return ChildCommand(
            (sys.executable, "-m", PROGRAM, "--control-fd", str(number)), {"GIVEN": "to the child"}, (number,)
        )

    async def start(self) -> Born:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # a message is a packet
        self.leaving.enter_context(ours)
        ours.setblocking(False)
        with theirs:
            number = theirs.fileno()
            process = await ChildProcess.spawn(
                self.command(theirs), cores=self.config.cores, log=self.log(), fork_server=self.fork_server
            )
        facts = await asyncio.get_running_loop().sock_recv(ours, 1 << 17)
        return Born(process, ours, json.loads(facts), number)

    async def warm(self) -> None:
        await until(
            lambda: PROGRAM in self.fork_server.warm,
            what="the fork server is warm",
            timeout_s=IMPORT_TIMEOUT_S,
        )


@asynccontextmanager
async def staged(folder: Path, *programs: str) -> AsyncIterator[Stage]:
    config = SupervisorConfig(
        name="alpha",
        host="here",
        control_plane_url="http://127.0.0.1:1",
        token="none",
        cores=frozenset({max(os.sched_getaffinity(0))}),
        home=folder,
        device="cpu",
        devices=(),
        broker_url=None,
        engine_commands={},
        engines={EngineKind.EMBEDDED: EngineFinding("fake"), EngineKind.VLLM: EngineFinding(None)},
    )
    fork_server = ForkServer(config, folder)
    fork_server.want(programs)
    running = asyncio.create_task(fork_server.run())
    with ExitStack() as leaving:
        try:
            yield Stage(fork_server, config, folder, leaving)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert fork_server.pid is None or not psutil.pid_exists(fork_server.pid)


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.chdir(ROOT)  # where the fork server finds tests.fakes
    monkeypatch.setenv("OF_THE_SUPERVISOR", "inherited")
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)  # libraries set it
    async with staged(tmp_path, PROGRAM) as stage:
        await stage.warm()
        yield stage


async def test_what_is_forked_is_a_child_like_any_other(stage: Stage) -> None:
    born = await stage.start()
    facts = born.facts
    assert facts["was_forked"]
    assert facts["is_main"]
    assert facts["pid"] == facts["session"] == born.process.pid
    assert facts["parent"] == os.getpid()
    assert facts["arguments"] == ["--control-fd", str(born.theirs)]
    assert facts["environment"]["GIVEN"] == "to the child"
    assert facts["environment"]["OF_THE_SUPERVISOR"] == "inherited"
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in facts["environment"]
    assert facts["folder"] == str(ROOT)
    assert facts["descriptors"] == sorted({0, 1, 2, born.theirs})
    assert facts["priority"] == os.getpriority(os.PRIO_PROCESS, 0)
    child = psutil.Process(born.process.pid)
    assert PROGRAM in " ".join(child.cmdline())
    assert set(child.cpu_affinity()) == stage.config.cores
    assert await born.told("3") == "exited with code 3"


async def test_siblings_draw_differently(stage: Stage) -> None:
    first, second = await stage.start(), await stage.start()
    assert first.facts["draw"] != second.facts["draw"]
    assert [await born.told("0") for born in (first, second)] == ["exited with code 0"] * 2


async def test_how_it_ended_is_told_with_its_last_line(stage: Stage) -> None:
    assert await (await stage.start()).told("break") == (
        "exited with code 1; last line: RuntimeError: as I was told"
    )
    assert await (await stage.start()).told("die") == "was killed by SIGTERM"
    killed = await stage.start()
    os.kill(killed.process.pid, signal.SIGKILL)
    assert await killed.process.wait() == "was killed by SIGKILL"


async def test_its_group_is_stopped_as_a_whole(stage: Stage) -> None:
    born = await stage.start()
    await born.process.stop(grace_s=0.0)
    assert not psutil.pid_exists(born.process.pid)


async def test_the_death_of_the_fork_server_touches_no_child_and_starts_go_on(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    survivor = await stage.start()
    assert stage.fork_server.pid is not None
    os.kill(stage.fork_server.pid, signal.SIGKILL)
    from_nothing = await stage.start()
    assert not from_nothing.facts["was_forked"]
    assert await from_nothing.told("0") == "exited with code 0"
    await stage.warm()
    assert "the fork server was killed by SIGKILL" in caplog.text
    assert "children start without it until it is back" in caplog.text
    again = await stage.start()
    assert again.facts["was_forked"]
    assert [await born.told("4") for born in (survivor, again)] == ["exited with code 4"] * 2


async def test_a_start_that_is_called_off_leaves_nothing(stage: Stage) -> None:
    before = children_now()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for num_steps in range(6):  # wherever it may be
            starting = asyncio.create_task(
                ChildProcess.spawn(
                    stage.command(theirs),
                    cores=stage.config.cores,
                    log=stage.log(),
                    fork_server=stage.fork_server,
                )
            )
            for _ in range(num_steps):
                await asyncio.sleep(0)
            if starting.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await starting
            else:  # the fork server answered at once, so it had started before
                await starting.result().stop(grace_s=0.0)
            await until(lambda: children_now() == before, what="nothing was left")
    born = await stage.start()  # and the fork server goes on
    assert born.facts["was_forked"]
    await born.told("0")


async def test_what_was_not_imported_starts_from_nothing(stage: Stage) -> None:
    command = ChildCommand((sys.executable, "-m", "this"))
    process = await ChildProcess.spawn(
        command, cores=stage.config.cores, log=stage.log(), fork_server=stage.fork_server
    )
    assert (await process.wait()).startswith("exited with code 0")


async def test_each_of_our_programs_may_be_forked_after_its_imports(tmp_path: Path) -> None:
    async with staged(tmp_path, *PROGRAMS) as stage:
        await until(
            lambda: stage.fork_server.warm == set(PROGRAMS),
            what="all are imported",
            timeout_s=IMPORT_TIMEOUT_S,
        )
        for program in PROGRAMS:
            command = ChildCommand((sys.executable, "-m", program, "--help"))
            process = await ChildProcess.spawn(
                command, cores=stage.config.cores, log=stage.log(), fork_server=stage.fork_server
            )
            assert (await process.wait()).startswith("exited with code 0")


@pytest.mark.parametrize(
    "module,reason",
    [
        ("tests.fakes.forked.stubborn", "the imported modules started threads (1)"),
        ("tests.fakes.forked.missing", "cannot be imported: ModuleNotFoundError"),
    ],
)
async def test_a_fork_server_that_cannot_be_forked_says_so_and_is_not_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: str,
    reason: str,
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("seamlessflow_workers.process.fork_server.client.preload_of", lambda _program: module)
    async with staged(tmp_path, PROGRAM) as stage:
        await until(lambda: reason in caplog.text, what="it is said", timeout_s=IMPORT_TIMEOUT_S)
        assert "children start without the fork server: " in caplog.text
        assert stage.fork_server.pid is not None
        assert not psutil.pid_exists(stage.fork_server.pid)
        born = await stage.start()
        assert not born.facts["was_forked"]
        assert await born.told("0") == "exited with code 0"


def children_now() -> set[int]:
    return {child.pid for child in psutil.Process().children()}
