"""The folder of an installation: its layout, the launcher that runs it, and its secrets.

Reads `SEAMLESSFLOW_HOME`, else uses `.seamlessflow` in the working folder; gives paths and a lock. Invariants: one
launcher at a time per folder (an flock, so a killed launcher frees it); secrets and tokens are created once; only their
owner can read them, and likewise logs and artifacts; `run.json` describes the launcher that has the lock and exists
exactly while that launcher is up.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from seamlessflow.cli.local.failure import InstallationFailed

# The kernel allows 107; PostgreSQL creates a lock file with a longer name beside its socket.
MAX_SOCKET_PATH_BYTES = 100
LONGEST_SOCKET_NAME = "postgres/.s.PGSQL.5432"
STOP_POLL_S = 0.05
# How long a launcher assumes that the lock is only taken by a process that checks it.
LOOKERS_S = 1.0
LOOKERS_POLL_S = 0.02


class InstallationRunning(InstallationFailed):
    """Another launcher has the lock of this installation."""


class UnsafeRuntimeFolder(InstallationFailed):
    """The short folder for sockets exists, and others can access it."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What `run.json` says about the running launcher."""

    pid: int
    started_at: str
    web_url: str
    gateway_url: str
    database_url: str
    broker_url: str
    more_gateway_urls: list[str] = field(default_factory=list)
    gateway_role_shortfall: str = ""  # why the gateway uses the database owner's role, if it does


@dataclass(frozen=True, slots=True)
class Home:
    """The paths of an installation."""

    root: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def machines(self) -> Path:
        return self.root / "machines"

    def machine_token_file(self, name: str) -> Path:
        return self.machines / f"{name}.token"

    @property
    def cli_token_file(self) -> Path:
        """The token that the command line uses for this installation."""
        return self.root / "cli.token"

    @property
    def run_file(self) -> Path:
        return self.root / "run.json"

    @property
    def digest(self) -> str:
        return hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]

    def create(self) -> "Home":
        for folder in (self.root, self.logs, self.artifacts, self.models, self.machines):
            folder.mkdir(parents=True, exist_ok=True)
        # They contain tokens, sign-in links, prompts and weights: no other user of the host may read them.
        for folder in (self.logs, self.artifacts, self.machines):
            folder.chmod(0o700)
        return self

    def runtime_dir(self) -> Path:
        """Return a folder for sockets: in the home, or a short one under /tmp if the home's path is too long."""
        inside = self.root / "run"
        if len(os.fsencode(inside / LONGEST_SOCKET_NAME)) <= MAX_SOCKET_PATH_BYTES:
            inside.mkdir(mode=0o700, exist_ok=True)
            return inside
        return private_folder(self.short_dir("run"), owner=(os.geteuid(), os.getegid()))

    def short_dir(self, name: str) -> Path:
        """Return the location of `name` if it needs a short path outside the home."""
        return Path(tempfile.gettempdir()) / f"sf-{os.geteuid()}-{self.digest}-{name}"

    @property
    def web_port(self) -> int | None:
        """The port of the dashboard in the last run, or None before the first."""
        try:
            return int(self._web_port_file.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def note_web_port(self, web_url: str) -> None:
        self._web_port_file.write_text(f"{urlsplit(web_url).port}\n")

    @property
    def _web_port_file(self) -> Path:
        return self.root / "web_port"

    def secret(self, name: str) -> str:
        """Return a random text, created on the first call and the same ever after."""
        return self.kept(self.root / f"{name}.secret", secrets.token_urlsafe(48))

    def kept(self, path: Path, text: str) -> str:
        """Return the content of `path`; if it does not exist yet, store `text` there, readable only by the owner."""
        if not path.exists():
            half_written = path.with_name(path.name + ".new")
            half_written.unlink(missing_ok=True)
            with os.fdopen(os.open(half_written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
            half_written.replace(path)
        return path.read_text()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the installation; raises `InstallationRunning` if another launcher has locked it."""
        with (self.root / "lock").open("a+") as file:
            self._take(file)
            self.run_file.unlink(missing_ok=True)  # left by a launcher that was killed
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            try:
                yield
            finally:
                self.run_file.unlink(missing_ok=True)
                self._remove_short_dirs()

    def _take(self, file: TextIO) -> None:
        deadline_at = time.monotonic() + LOOKERS_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline_at:
                    raise self.already_running() from error
                time.sleep(LOOKERS_POLL_S)
            else:
                return

    def already_running(self) -> InstallationRunning:
        return InstallationRunning(
            f"SeamlessFlow is already running in {self.root} (process {self._noted_holder()})."
        )

    def _remove_short_dirs(self) -> None:
        everywhere = self.short_dir("*")
        for folder in everywhere.parent.glob(everywhere.name):
            # A folder that still has a socket is kept for the server that is stopping.
            with contextlib.suppress(OSError):
                for inner in folder.iterdir():
                    inner.rmdir()
                folder.rmdir()

    def write_run(self, run: RunInfo) -> None:
        half_written = self.run_file.with_name("run.json.new")
        half_written.touch(mode=0o600)  # addresses of external servers contain passwords
        half_written.write_text(json.dumps(asdict(run), indent=2) + "\n")
        half_written.replace(self.run_file)

    def read_run(self) -> RunInfo | None:
        """Return what describes the running launcher, or None. A file left by a killed launcher is ignored."""
        try:
            run = RunInfo(**json.loads(self.run_file.read_text()))
        except FileNotFoundError:
            return None
        return run if run.pid == self.holder() else None

    def holder(self) -> int | None:
        """Return the process id of the launcher that is running or starting."""
        return self._noted_holder() if self.is_locked() else None

    def _noted_holder(self) -> int | None:
        noted = (self.root / "lock").read_text()
        return int(noted) if noted.isdigit() else None

    def is_locked(self) -> bool:
        if not self.root.exists():
            return False
        with (self.root / "lock").open("a") as file:
            try:
                # Shared, so that two processes that check do not mistake each other for a launcher.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def request_stop(self, *, timeout_s: float) -> bool:
        """Ask the launcher, even one that is still starting, to stop, and wait for it.

        Returns False if there is none or it takes too long.
        """
        pid = self.holder()
        if pid is None:
            return False
        os.kill(pid, signal.SIGTERM)
        deadline_at = time.monotonic() + timeout_s
        while self.is_locked():
            if time.monotonic() > deadline_at:
                return False
            time.sleep(STOP_POLL_S)
        return True


def find_home() -> Home:
    """Return the installation named by the environment, else the one in the working folder."""
    named = os.environ.get("SEAMLESSFLOW_HOME")
    return Home(Path(named).absolute() if named else Path.cwd() / ".seamlessflow")


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def private_folder(path: Path, *, owner: tuple[int, int]) -> Path:
    """Make `path` a folder that only `owner` can enter; refuse a folder prepared by another user."""
    with contextlib.suppress(FileExistsError):  # created by an earlier start
        path.mkdir(mode=0o700)
    found = path.lstat()
    is_ours = found.st_uid in (os.geteuid(), owner[0])
    if not stat.S_ISDIR(found.st_mode) or not is_ours or stat.S_IMODE(found.st_mode) & 0o077:
        raise UnsafeRuntimeFolder(f"{path} is not a folder of mode 0700 that belongs to us; remove it.")
    if found.st_uid != owner[0]:
        os.chown(path, *owner)
    return path
