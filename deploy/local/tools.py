"""Creates `.seamlessflow/venvs/deploy` with the tools that check deploy/ (Helm, Compose, hadolint, schemas).

Enters: `deploy/constraints/deploy.txt` and the Python that runs this. Leaves: the environment, and its path on standard
output. Invariant: a second run with the same lock does nothing. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".seamlessflow" / "venvs" / "deploy"
LOCK = ROOT / "deploy" / "constraints" / "deploy.txt"


def main() -> int:
    VENV.parent.mkdir(parents=True, exist_ok=True)
    with VENV.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = VENV / "stamp"
        wanted = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
        if not (stamp.exists() and stamp.read_text() == wanted):
            shutil.rmtree(VENV, ignore_errors=True)
            python = str(VENV / "bin" / "python")
            for command in (
                [sys.executable, "-m", "venv", str(VENV)],
                [python, "-m", "pip", "--no-input", "install", "--quiet", "-r", str(LOCK)],
            ):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
                    print("tools: " + " ".join(lines[-2:] or done.stderr.splitlines()[-2:]), file=sys.stderr)
                    return 1
            stamp.write_text(wanted)
    print(VENV)
    return 0


if __name__ == "__main__":
    sys.exit(main())
