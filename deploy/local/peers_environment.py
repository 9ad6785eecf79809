"""Creates the environment `.seamlessflow/venvs/peers-trl` for comparisons with TRL, on demand, never in `make setup`.

Enters: the environment of `bootstrap` and `deploy/constraints/peers-trl.txt`. Leaves: an interpreter that has TRL and,
behind it, every package of the app's environment (the same torch and transformers, so that a comparison compares
trainers and not versions). Invariant as in `bootstrap`: a run with nothing to do only compares a stamp.
"""

import fcntl
import hashlib
import shutil
import sys
import sysconfig
import time
from pathlib import Path

from deploy.local import bootstrap
from deploy.local.bootstrap import HOME, ROOT, SetupFailed, say, step

VENV = HOME / "venvs" / "peers-trl"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "deploy" / "constraints" / "peers-trl.txt"
OVERLAY = "behind.pth"


def main() -> int:
    try:
        ensure()
    except SetupFailed as failure:
        print("setup: no TRL: " + str(failure), file=sys.stderr)
        return 1
    return 0


def ensure() -> Path:
    """Return the interpreter; create the environment if needed. Raises SetupFailed."""
    HOME.mkdir(exist_ok=True)
    with (HOME / "setup-peers.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_up_to_date():
            set_up()
    return PYTHON


def is_up_to_date() -> bool:
    stamp = VENV / "setup-stamp"
    return stamp.exists() and stamp.read_text() == wanted_stamp() and PYTHON.exists()


def wanted_stamp() -> str:
    return hashlib.sha256(f"{ROOT} {bootstrap.wanted_stamp()}".encode() + LOCK.read_bytes()).hexdigest()


def set_up() -> None:
    started_at = time.monotonic()
    bootstrap.LOG.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(VENV, ignore_errors=True)
    step("virtual environment of TRL", [sys.executable, "-m", "venv", str(VENV)])
    own = Path(sysconfig.get_path("purelib", vars={"base": str(VENV), "platbase": str(VENV)}))
    (own / OVERLAY).write_text(sysconfig.get_path("purelib") + "\n")
    step("TRL", [str(PYTHON), "-m", "pip", "install", "--no-deps", "-r", str(LOCK)])
    step("TRL check", [str(PYTHON), "-c", "from trl import GRPOTrainer"])
    (VENV / "setup-stamp").write_text(wanted_stamp())
    say(f"environment of TRL ready in {time.monotonic() - started_at:.0f} s: {VENV.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
