"""Creates the environment `.seamlessflow/venvs/app` of a source checkout. It needs only Python.

Enters: a Linux machine with Python, this checkout's `pyproject.toml` and `deploy/constraints/app.txt`; with `--check`
nothing is created. Leaves: a virtual environment with everything that `make demo` and `make test` need, its log, and
the built dashboard. Invariants: nothing is downloaded before every preflight check has passed; an interrupted run is
continued by the next one; a run with nothing to do only compares a stamp. Standard library only, and a syntax that an
old Python can read, so that even that one gets a clear sentence.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".seamlessflow"
VENV = HOME / "venvs" / "app"
LOG = HOME / "logs" / "setup.log"
CONSTRAINTS = ROOT / "deploy" / "constraints" / "app.txt"
EXTRAS = "control,embedded,data,s3,rollout,train,dev,frontend"

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
OLDEST_GLIBC = (2, 28)
MIN_DISK_BYTES = 4 * 1024**3
CUDA_DOWNLOAD = "about 3 GB"

PROBE_TIMEOUT_S = 30
NUM_REASON_LINES = 3


class SetupFailed(Exception):
    """The environment cannot be created; the message says why in one sentence."""


def main() -> int:
    try:
        if sys.argv[1:] == ["--check"]:
            say(f"this machine is suitable; {preflight()} would be used")
        else:
            if not is_up_to_date():
                set_up()
            build_frontend()
    except SetupFailed as failure:
        print("setup: " + str(failure), file=sys.stderr)
        return 1
    return 0


def is_up_to_date() -> bool:
    stamp = VENV / "setup-stamp"
    return stamp.exists() and stamp.read_text() == wanted_stamp() and (VENV / "bin" / "python").exists()


def wanted_stamp() -> str:
    digest = hashlib.sha256(str(ROOT).encode())
    for path in (ROOT / "pyproject.toml", CONSTRAINTS):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def set_up() -> None:
    started_at = time.monotonic()
    python = preflight()
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with (HOME / "setup.lock").open("a") as lock:
        # A second `make` waits here and then finds the work done.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_up_to_date():
            return
        install(python)
        (VENV / "setup-stamp").write_text(wanted_stamp())
    say(f"environment ready in {time.monotonic() - started_at:.0f} s: {VENV.relative_to(ROOT)}")


def build_frontend() -> None:
    """Build the dashboard if its sources changed. The platform runs without it, so a failure is only reported."""
    command = [str(VENV / "bin" / "python"), str(ROOT / "deploy" / "local" / "frontend.py"), "--optional"]
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise SetupFailed("the build of the dashboard failed (see above).")


def preflight() -> str:
    """Check everything that needs no download; return the Python to build with."""
    check_system(sys.platform, os.uname().machine, libc_name())
    python = usable_python()
    check_venv_module(python)
    check_disk(shutil.disk_usage(str(ROOT)).free)
    return python


def check_system(system: str, machine: str, libc: str) -> None:
    if system != "linux" or machine != "x86_64":
        raise SetupFailed(f"SeamlessFlow runs on Linux x86-64; this is {system} {machine}.")
    name, _, version = libc.partition(" ")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if name != "glibc" or numbers < OLDEST_GLIBC:
        raise SetupFailed(
            f"glibc {dotted(OLDEST_GLIBC)} or newer is needed; this system has {libc or 'another C library'}."
        )


def libc_name() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except ValueError:  # musl does not support this query
        return ""


def usable_python() -> str:
    """Return this Python if its version is accepted, else the newest on the PATH that is accepted and runs."""
    candidates = [sys.executable]
    for minor in range(NEWEST_PYTHON[1], OLDEST_PYTHON[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        candidates += [found] if found else []
    for candidate in candidates:
        if OLDEST_PYTHON <= version_of(candidate) <= NEWEST_PYTHON:
            return candidate
    raise SetupFailed(
        f"Python {dotted(OLDEST_PYTHON)} to {dotted(NEWEST_PYTHON)} is needed; this is "
        f"{dotted(sys.version_info[:2])}, and the PATH offers no other that runs."
    )


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def version_of(python: str) -> tuple[int, ...]:
    """Return major and minor version by running it: a name on the PATH may be a shim without a Python behind it."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run(
            [python, "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(int(part) for part in done.stdout.split())


def check_venv_module(python: str) -> None:
    done = subprocess.run(
        [python, "-c", "import venv, ensurepip"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode != 0:
        raise SetupFailed(
            f"{python} lacks the modules venv and ensurepip (on Debian and Ubuntu: the package python3-venv)."
        )


def check_disk(free_bytes: int) -> None:
    if free_bytes < MIN_DISK_BYTES:
        raise SetupFailed(
            f"{free_bytes / 1024**3:.1f} GiB of disk are free under {ROOT}; "
            f"at least {MIN_DISK_BYTES // 1024**3} GiB are needed."
        )


def install(python: str) -> None:
    if not is_venv_of(python):
        shutil.rmtree(str(VENV), ignore_errors=True)
        step("virtual environment", [python, "-m", "venv", str(VENV)])
    # Newer pips resolve from metadata alone, so finding out which torch would be installed downloads nothing.
    step("pip", pip("install", "--upgrade", "pip>=25"))
    torch = pip("install", *torch_sources(), "torch")
    announce_torch(torch)
    step("torch", torch)
    step("build tools", pip("install", "setuptools", "wheel", "ninja", "hatchling", "hatch-vcs"))
    # DeepSpeed's build looks at the torch that is installed, which an isolated build would not see.
    step("deepspeed", pip("install", "--no-build-isolation", "deepspeed"))
    step(
        "everything else", pip("install", *torch_sources(), "--no-build-isolation", "-e", f"{ROOT}[{EXTRAS}]")
    )


def is_venv_of(python: str) -> bool:
    """Whether the environment exists, runs, has pip and has the chosen Python's version."""
    mine = VENV / "bin" / "python"
    return (VENV / "bin" / "pip").exists() and version_of(str(mine)) == version_of(python)


def pip(*arguments: str) -> list[str]:
    constraints = ["-c", str(CONSTRAINTS)] if arguments[0] == "install" else []
    return [str(VENV / "bin" / "python"), "-m", "pip", "--no-input", *arguments, *constraints]


def torch_sources() -> list[str]:
    index = os.environ.get("TORCH_INDEX_URL")
    # As an extra index: a build with a local version (+cpu) outranks the plain one of the same number.
    return ["--extra-index-url", index] if index else []


def announce_torch(install_command: list[str]) -> None:
    """Announce a large download, and say how to get the small build."""
    if is_installed("torch"):
        return
    done = run([*install_command, "--no-deps", "--dry-run", "--quiet", "--report", "-"])
    report = json.loads(done.stdout[done.stdout.index(b"{") :]) if done.returncode == 0 else {"install": []}
    versions = [item["metadata"]["version"] for item in report["install"]]
    if any(not version.endswith("+cpu") for version in versions):
        say(f"torch comes with NVIDIA's libraries, {CUDA_DOWNLOAD} to download; without a GPU set")
        say("TORCH_INDEX_URL to PyTorch's index of CPU builds for the small one")


def is_installed(package: str) -> bool:
    return run(pip("show", package)).returncode == 0


def step(name: str, command: list[str]) -> None:
    say(name + " ...")
    started_at = time.monotonic()
    done = run(command)
    with LOG.open("ab") as log:
        log.write(("\n$ {}\n".format(" ".join(command))).encode() + done.stdout + done.stderr)
    if done.returncode != 0:
        raise SetupFailed(f"the step '{name}' failed: {reason(done.stderr)} (see {LOG.relative_to(ROOT)})")
    say(f"{name}: {time.monotonic() - started_at:.0f} s")


def run(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, cwd=str(ROOT), check=False)


def reason(errors: bytes) -> str:
    lines = [line.strip() for line in errors.decode(errors="replace").splitlines() if line.strip()]
    blamed = [line for line in lines if line.startswith("ERROR")] or lines
    return " ".join(blamed[-NUM_REASON_LINES:]) or "it printed nothing"


def say(text: str) -> None:
    print("setup: " + text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
