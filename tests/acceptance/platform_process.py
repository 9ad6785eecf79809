"""A whole installation as a child process, started by the real command and killed with real
signals."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import psutil

from seamlessflow.cli.connection import client_of
from seamlessflow.cli.local.state import Home
from seamlessflow.client import Client

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
END_TIMEOUT_S = 20.0  # of all processes below a launcher that was killed
POLL_S = 0.2  # each look is a request or a search of processes, on the cores that the jobs use
Result = TypeVar("Result")


def eventually(probe: Callable[[], Result], *, timeout_s: float, what: str) -> Result:
    """Return the first truthy value of `probe`; fail with `what` after the deadline."""
    deadline_at = time.monotonic() + timeout_s
    while True:
        if value := probe():
            return value
        assert time.monotonic() < deadline_at, f"{what} did not happen within {timeout_s:.0f} s"
        time.sleep(POLL_S)


@dataclass
class PlatformProcess:
    """`seamlessflow up` with its own home. `prefix` is a command that starts it, for example in a
    namespace.

    As a context it never outlives its test: it is stopped at the end, and killed if the test failed.
    """

    home: Home
    environ: dict[str, str]
    prefix: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.stop()
        finally:
            self._end()

    def start(self, *arguments: str) -> None:
        self.home.create()
        with (self.home.logs / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "seamlessflow.cli", "up", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environ | {"SEAMLESSFLOW_HOME": str(self.home.root)},
            )
        eventually(self._is_up, timeout_s=START_TIMEOUT_S, what="the platform's start")

    def stop(self) -> None:
        assert self.process is not None
        family = self.family()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_TIMEOUT_S)
        _, alive = psutil.wait_procs(family, timeout=10)
        assert not alive, f"left running: {[' '.join(p.cmdline()) for p in alive]}"

    def kill(self) -> None:
        """Kill the launcher with -9; everything below it must end by itself."""
        assert self.process is not None
        family = self.family()
        self.process.kill()
        self.process.wait()
        _, alive = psutil.wait_procs(family, timeout=END_TIMEOUT_S)
        assert not alive, f"outlived the launcher: {[' '.join(p.cmdline()) for p in alive]}"

    def family(self) -> list[psutil.Process]:
        assert self.process is not None
        children: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return children

    def find(self, *words: str, under: str | None = None) -> list[psutil.Process]:
        """Return the processes whose command line contains all `words`, optionally only those below
        the process whose command line contains `under`."""
        return processes_matching(self.family(), words, under=under)

    def client(self) -> Client:
        return client_of(self.home)

    @property
    def gateway_url(self) -> str:
        run = self.home.read_run()
        assert run is not None
        return run.gateway_url

    @property
    def token(self) -> str:
        return self.home.cli_token_file.read_text().strip()

    def sign_in_link(self) -> str:
        """Return a new link for the owner, which works once."""
        made = subprocess.run(
            [sys.executable, "-m", "seamlessflow.cli", "manage", "create_sign_in_link"],
            env=self.environ | {"SEAMLESSFLOW_HOME": str(self.home.root)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return made.stdout.split()[-1]

    def _end(self) -> None:
        """Kill what still runs, without a word: a failure has been reported already."""
        if self.process is None or self.process.poll() is not None:
            return
        family = self.family()
        self.process.kill()
        self.process.wait()
        _, alive = psutil.wait_procs(family, timeout=END_TIMEOUT_S)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _is_up(self) -> bool:
        assert self.process is not None
        log = (self.home.logs / "up.log").read_text(errors="replace")
        assert self.process.poll() is None, (
            f"the platform ended with {self.process.returncode}: {log[-2000:]}"
        )
        run = self.home.read_run()
        if run is None:
            return False
        # Another installation may answer at an earlier address, and a command of `prefix` is not a launcher.
        assert run.pid in {self.process.pid, *(process.pid for process in self.family())}
        return log.rstrip().endswith("up; Ctrl-C stops it")


def kill_hard(processes: list[psutil.Process]) -> None:
    """Kill all of these processes with -9 at once; some may end with another before their own
    turn."""
    assert processes, "nothing to kill"
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def processes_matching(
    family: Iterable[psutil.Process], words: Sequence[str], *, under: str | None
) -> list[psutil.Process]:
    """Return the processes whose command line contains all `words`, optionally only those below a
    process whose command line contains `under`."""
    return [
        process
        for process in family
        if all(word in _command_line(process) for word in words)
        and (under is None or any(under in _command_line(parent) for parent in _parents(process)))
    ]


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _parents(process: psutil.Process) -> list[psutil.Process]:
    try:
        parents: list[psutil.Process] = process.parents()
    except psutil.NoSuchProcess:
        return []
    return parents


def new_platform(
    root: Path, *, model_root: Path, checkout: Path | None = None, has_fork_server: bool = True
) -> PlatformProcess:
    """Return a platform that runs the code of this repository, or of another `checkout` of it.

    Without fork servers it costs less if each of its children starts only once: their imports would end after that.
    """
    ours = ("SEAMLESSFLOW_", "DJANGO_SETTINGS_MODULE")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    if checkout is not None:
        environ["PYTHONPATH"] = os.pathsep.join(str(checkout / part) for part in ("platform", "workers", "."))
    if not has_fork_server:
        environ["SEAMLESSFLOW_FORK_SERVER"] = "off"
    return PlatformProcess(Home(root), environ | {"MODEL_ROOTS": str(model_root)})
