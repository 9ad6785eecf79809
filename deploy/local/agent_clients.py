"""Creates environments of other people's agent clients, `.seamlessflow/clients/<name>`, on demand.

Enters: `deploy/constraints/agent-clients.toml`, which pins them; a client is a list of packages of Python or of Node.
Leaves: a virtual environment that has nothing else, or a folder with `node_modules`. They are for tests, and never part
of `make setup`. Invariant as in `bootstrap`: a run with nothing to do only compares stamps.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deploy.local.bootstrap import HOME, LOG, ROOT, SetupFailed, say, step
from deploy.local.frontend import BuildFailed, node_folder

CLIENTS = HOME / "clients"
# Where no registry answers, npm would try for more than a minute.
NPM_RETRIES = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=4000")
# It waits for ever for some connections, such as one whose certificate it cannot check.
NPM_TIMEOUT_S = 300
NPM_FLAGS = ("--no-audit", "--no-fund", "--ignore-scripts", *NPM_RETRIES)
PINS = ROOT / "deploy" / "constraints" / "agent-clients.toml"


def main() -> int:
    failures = ensure(pins())
    for name, reason in failures.items():
        print(f"setup: no agent client {name}: {reason}", file=sys.stderr)
    return 1 if failures else 0


def ensure(names: Iterable[str]) -> dict[str, str]:
    """Create the environments that are missing or out of date, all at once. Return why those failed that did."""
    CLIENTS.mkdir(parents=True, exist_ok=True)
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with (CLIENTS / "setup.lock").open("a") as lock, ThreadPoolExecutor() as threads:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [name for name in names if not is_up_to_date(name)]
        return {
            name: reason
            for name, reason in zip(missing, threads.map(failure_of, missing), strict=True)
            if reason
        }


def failure_of(name: str) -> str:
    """Create an environment; return why it failed, or nothing."""
    try:
        set_up(name)
    except SetupFailed as failure:
        return str(failure)
    return ""


def python_of(name: str) -> Path:
    return CLIENTS / name / "bin" / "python"


def modules_of(name: str) -> Path:
    return CLIENTS / name / "node_modules"


def node_environ() -> dict[str, str]:
    """Return an environment in which `node` is the one of the frontend's wheel. Raises SetupFailed."""
    try:
        folder = node_folder()
    except BuildFailed as failure:
        raise SetupFailed(str(failure)) from failure
    return os.environ | {"PATH": f"{folder / 'bin'}:{os.environ.get('PATH', '')}", "NO_COLOR": "1"}


def pins() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads(PINS.read_text())


def is_up_to_date(name: str) -> bool:
    stamp = CLIENTS / name / "setup-stamp"
    return stamp.exists() and stamp.read_text() == wanted_stamp(name)


def wanted_stamp(name: str) -> str:
    return hashlib.sha256(f"{ROOT} {sys.version} {pins()[name]}".encode()).hexdigest()


def set_up(name: str) -> None:
    started_at = time.monotonic()
    folder, pinned = CLIENTS / name, pins()[name]
    shutil.rmtree(folder, ignore_errors=True)
    if "python" in pinned:
        set_up_python(name, pinned["python"])
    else:
        set_up_node(name, pinned["node"])
    (folder / "setup-stamp").write_text(wanted_stamp(name))
    say(f"agent client {name} ready in {time.monotonic() - started_at:.0f} s: {folder.relative_to(ROOT)}")


def set_up_python(name: str, packages: list[str]) -> None:
    step(
        f"virtual environment of {name}", [sys.executable, "-m", "venv", "--without-pip", str(CLIENTS / name)]
    )
    install = ["install", "--no-deps", "--no-compile", *packages]
    step(name, [sys.executable, "-m", "pip", "--python", str(python_of(name)), *install])


def set_up_node(name: str, packages: list[str]) -> None:
    """Install with the npm of the frontend's wheel, whose own launcher is broken (see `frontend.node_run`)."""
    environ = node_environ()
    npm = node_folder() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = ["node", str(npm), "install", *NPM_FLAGS]
    (CLIENTS / name).mkdir()
    (CLIENTS / name / "package.json").write_text("{}")
    try:
        done = subprocess.run(
            [*command, *packages],
            cwd=CLIENTS / name,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            timeout=NPM_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise SetupFailed(f"npm did not install {name} within {NPM_TIMEOUT_S} s") from None
    if done.returncode != 0:
        blamed = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
        raise SetupFailed(f"npm could not install {name}: {' '.join(blamed[:3])}")


if __name__ == "__main__":
    sys.exit(main())
