"""A device that counts bytes and refuses: all processes that know its folder allocate from it together.

    device = CountingDevice.create(folder, total_bytes=80)
    device.hold(50)  # this process has 50 bytes now, whatever it had before

A process finds its device by the environment. What belongs to processes that are gone is free.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

VARIABLE = "COUNTING_DEVICE"


class OutOfMemory(RuntimeError):
    """The device does not have as much."""


class CountingDevice:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._refusals = folder / "refusals"

    @classmethod
    def create(cls, folder: Path, *, total_bytes: int) -> Self:
        folder.mkdir()
        (folder / "total").write_text(str(total_bytes))
        (folder / "refusals").touch()
        return cls(folder)

    @classmethod
    def of_environment(cls) -> Self | None:
        return cls(Path(os.environ[VARIABLE])) if VARIABLE in os.environ else None

    def hold(self, num_bytes: int) -> None:
        """Have this many bytes from now on. Raises OutOfMemory."""
        with self._locked():
            total = int((self._folder / "total").read_text())
            others = sum(held for process, held in self._held() if process != os.getpid())
            if num_bytes + others > total:
                said = f"process {os.getpid()} asked for {num_bytes} beside {others} of {total} bytes"
                with self._refusals.open("a") as file:
                    file.write(said + "\n")
                raise OutOfMemory(said)
            (self._folder / f"held-{os.getpid()}").write_text(str(num_bytes))

    def refusals(self) -> list[str]:
        return self._refusals.read_text().splitlines()

    def held(self) -> dict[int, int]:
        """Return what each living process has."""
        with self._locked():
            return dict(self._held())

    def _held(self) -> Iterator[tuple[int, int]]:
        for file in self._folder.glob("held-*"):
            process = int(file.name.removeprefix("held-"))
            if _lives(process):
                yield process, int(file.read_text())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def sizes(variable: str) -> tuple[int, int]:
    """Return what a process uses awake and asleep, by a variable such as `60,4`; nothing if there is none."""
    awake, _, asleep = os.environ.get(variable, "0,0").partition(",")
    return int(awake), int(asleep)


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
