"""Removes everything that this checkout has created, except its environments.

Enters: the folder `.seamlessflow` and the caches of the tools. Leaves: a checkout as after `make setup`.
Invariant: nothing is removed while an installation runs there.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".seamlessflow"
KEPT = {"venvs", "clients", "lock", "setup.lock"}
CACHES = (
    "build",
    "dist",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    ".import_linter_cache",
)


def main() -> int:
    HOME.mkdir(exist_ok=True)
    with (HOME / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                f"clean: an installation runs in {HOME}; stop it with `seamlessflow down`.", file=sys.stderr
            )
            return 1
        for path in [*HOME.iterdir(), *(ROOT / name for name in CACHES)]:
            if path.name not in KEPT:
                remove(path)
    return 0


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
