"""The supervisor's side of the fork server: a process that has imported what its children need, and forks them.

It takes the roles that the machine's tags allow and commands to start. It returns processes that are children of the
supervisor like any other, ready within tens of milliseconds, whereas a new interpreter would import for seconds.
Invariants: for a program that the fork server has not imported it returns None, and the caller starts a new process;
the end of the fork server affects no child and is logged; no process that was requested is left behind unnoticed.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seamlessflow.core.job_spec import EngineKind
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.process.adopted import AdoptedProcess, adopting, is_adoption_possible
from seamlessflow_workers.process.backoff import Backoff
from seamlessflow_workers.process.child import ChildCommand, ChildProcess
from seamlessflow_workers.process.environment import DEVICE_ENVIRONMENT
from seamlessflow_workers.process.fork_server.messages import (
    MESSAGE_BYTES,
    Fork,
    Forked,
    FromForkServer,
    Preload,
    ToForkServer,
    Unable,
    Warm,
    decode_from_fork_server,
    encode,
)
from seamlessflow_workers.process.logs import OutputLog
from seamlessflow_workers.process.settings import ChildSettings

MODULE = "seamlessflow_workers.process.fork_server"
# Programs with a module `preload` beside their `__main__`, which imports what they need.
PROGRAMS = (
    "seamlessflow_workers.train",
    "seamlessflow_workers.rollout.engine",
    "seamlessflow_workers.agents",
)
FORK_TIMEOUT_S = 10.0
STABLE_S = 60.0
LET_IN = b"!"
# Asking torch for CUDA devices must not initialise the driver before the fork.
ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}

log = logging.getLogger(__name__)


def programs_of(tags: Iterable[str], settings: ChildSettings) -> tuple[str, ...]:
    """Return our programs that a machine with these tags starts under our own interpreter."""
    commands = {Role.TRAIN: settings.train_command, Role.AGENT: settings.agent_command}
    has_vllm = settings.device == "cuda" and settings.engines[EngineKind.VLLM].version is not None
    if not has_vllm:  # with vLLM, jobs ask for it, and it has its own interpreter and warm-up
        commands[Role.ROLLOUT] = settings.engine_commands[EngineKind.EMBEDDED]
    present = set(tags)
    modules = (_module_of(command) for role, command in commands.items() if role in present)
    return tuple(module for module in modules if module in PROGRAMS)


def preload_of(program: str) -> str:
    return f"{program}.preload"


def _module_of(arguments: Sequence[str]) -> str | None:
    is_ours = tuple(arguments[:2]) == (sys.executable, "-m")
    return arguments[2] if is_ours else None


class ForkServer:
    def __init__(self, settings: ChildSettings, logs: Path) -> None:
        self._settings = settings
        self._logs = logs
        self._wanted: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        self._warm: frozenset[str] = frozenset()
        self._is_importing = False
        self._problem = ""  # why it cannot be used; empty if it can
        self._control: socket.socket | None = None
        self._exchanging = asyncio.Lock()
        self._process: ChildProcess | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def warm(self) -> frozenset[str]:
        """The programs that can be forked."""
        return frozenset() if self._is_importing else self._warm

    def want(self, programs: Iterable[str]) -> None:
        """Make these programs ready, in addition to earlier ones."""
        missing = tuple(program for program in programs if program not in self._wanted)
        if missing:
            self._wanted += missing
            self._changed.set()

    async def run(self) -> None:
        """Run until cancelled, and leave nothing behind."""
        if not is_adoption_possible():
            log.warning("children start without the fork server: this kernel has no pidfd_open")
            self._changed = asyncio.Event()  # never set
        backoff = Backoff(first_s=0.5, longest_s=60.0)
        while True:
            await self._changed.wait()
            started_s = time.monotonic()
            ending = await self._run_process()
            if self._problem:
                log.warning("children start without the fork server: %s", self._problem)
                self._problem = ""  # try again when other roles are wanted
                continue
            if time.monotonic() - started_s > STABLE_S:
                backoff.reset()
            wait_s = backoff.next_s()
            log.warning(
                "the fork server %s; children start without it until it is back, next try in %.1f s",
                ending,
                wait_s,
            )
            await asyncio.sleep(wait_s)
            self._changed.set()

    async def spawn(
        self, command: ChildCommand, *, cores: frozenset[int], environment: Mapping[str, str], output: int
    ) -> AdoptedProcess | None:
        """Fork a process whose output goes to the descriptor `output`; None if the caller must start a new one."""
        module = _module_of(command.arguments)
        if module is None or module not in self.warm:
            return None
        request = Fork(
            module=module,
            arguments=list(command.arguments[3:]),
            environment=dict(environment),
            cores=sorted(cores),
            descriptors=list(command.inherited_fds),
        )
        enter, let = os.pipe()
        forking = asyncio.create_task(self._fork(request, (enter, output, *command.inherited_fds)))
        is_let_in = False
        try:
            await asyncio.wait({forking})
            with contextlib.suppress(BrokenPipeError):  # it has ended already, which its waiter will notice
                os.write(let, LET_IN)
            is_let_in = True
            return forking.result()
        finally:
            if not forking.done():  # cancelled; the descriptors must outlive the request
                await asyncio.wait({forking})
            os.close(let)
            os.close(enter)
            if not is_let_in and (process := forking.result()) is not None:
                await process.wait()  # it exits at its closed gate

    async def _fork(self, request: Fork, descriptors: Sequence[int]) -> AdoptedProcess | None:
        control = self._control
        if control is None:
            return None
        try:
            with adopting():
                async with asyncio.timeout(FORK_TIMEOUT_S):
                    answer = await self._exchange(control, request, descriptors)
            if isinstance(answer, Forked):
                return AdoptedProcess(answer.pid)
            problem = answer.reason if isinstance(answer, Unable) else f"it answered {answer}"
        except TimeoutError:
            problem = f"the fork server did not answer within {FORK_TIMEOUT_S:.0f} s"
            if self._process is not None:
                await self._process.stop(grace_s=0.0)
        except ChildProcessError:
            problem = "the kernel gave the new process to another parent"
        except OSError as error:
            problem = str(error)
        log.warning("%s starts without the fork server: %s", request.module, problem)
        return None

    async def _run_process(self) -> str:
        """Run one fork server to its end; return how it ended."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        output = OutputLog(self._logs, role="fork_server")
        keeping: asyncio.Task[None] | None = None
        try:
            with theirs:
                process = self._process = await ChildProcess.spawn(
                    self._command(theirs.fileno()), cores=self._settings.cores, log=output
                )
            self._control = ours
            keeping = asyncio.create_task(self._keep_warm(ours))
            ending = asyncio.create_task(process.wait())
            await asyncio.wait({keeping, ending}, return_when=asyncio.FIRST_COMPLETED)
            if self._problem:
                await process.stop(grace_s=0.0)
            return await ending
        except OSError as error:
            return f"could not be started: {error}"
        finally:
            self._warm, self._control = frozenset(), None
            if self._process is not None:
                await self._process.stop(grace_s=0.0)  # it owns nothing
            if keeping is not None:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
            async with self._exchanging:  # released at once, because the other end of the socket is gone
                ours.close()
            output.close()

    def _command(self, control_fd: int) -> ChildCommand:
        return ChildCommand(
            (sys.executable, "-m", MODULE, "--control-fd", str(control_fd)),
            DEVICE_ENVIRONMENT[self._settings.device] | ENVIRONMENT,
            (control_fd,),
        )

    async def _keep_warm(self, control: socket.socket) -> None:
        """Have it import the wanted programs while it lives; return when it ends or cannot be used."""
        while True:
            self._changed.clear()
            missing = [program for program in self._wanted if program not in self._warm]
            if missing:
                started_s = time.monotonic()
                self._is_importing = True
                try:
                    answer = await self._exchange(
                        control, Preload([preload_of(program) for program in missing])
                    )
                except OSError:
                    return  # the way the process ended says more
                finally:
                    self._is_importing = False
                if not isinstance(answer, Warm):
                    self._problem = answer.reason if isinstance(answer, Unable) else f"it answered {answer}"
                    return
                self._warm |= frozenset(missing)
                log.info(
                    "the fork server has imported %s in %.1f s; %d MB are resident",
                    ", ".join(missing), time.monotonic() - started_s, answer.rss_bytes >> 20,
                )  # fmt: skip
            await self._changed.wait()

    async def _exchange(
        self, control: socket.socket, request: ToForkServer, descriptors: Sequence[int] = ()
    ) -> FromForkServer:
        """Send a request and return the answer. Raises OSError if the fork server is gone."""
        async with self._exchanging:
            socket.send_fds(control, [encode(request)], descriptors)
            data = await asyncio.get_running_loop().sock_recv(control, MESSAGE_BYTES)
        if not data:
            raise ConnectionResetError("the fork server has ended")
        return decode_from_fork_server(data)
