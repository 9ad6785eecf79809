"""How an item that computes by itself is run, and how it tells what it found.

An item is a function of a device, its sizes and a `Figures` to fill. Figures are written whenever one is added, so an
item that is killed leaves those that it had. A false assertion fails the item; `Skipped` says why it cannot be run.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.gpu.checklist.plan import DEVICES
from tests.gpu.checklist.running import FIGURES_VARIABLE, NOT_TRIED, SKIPPED_STATUS

Check = Callable[[str, list[str], "Figures"], None]


class Skipped(Exception):
    """The item cannot be run on this machine; the message says why in one sentence."""


class Figures:
    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[str, Any] = {}

    def note(self, name: str, /, **values: Any) -> None:
        """Add a section, and print it."""
        self._found[name] = values
        print(json.dumps({name: values}), flush=True)
        self._write()

    def leave_out(self, what: str, reason: str) -> None:
        """Say what the item does not try here."""
        self._found.setdefault(NOT_TRIED, []).append(f"{what}: {reason}")
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            self._path.write_text(json.dumps(self._found))


def item_main(check: Check, *, needs_card: bool = True) -> None:
    """`needs_card`: whether the item is skipped on a machine without the GPU that was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=DEVICES, required=True)
    parser.add_argument("sizes", nargs="*")
    arguments = parser.parse_args()
    path = os.environ.get(FIGURES_VARIABLE)
    try:
        if needs_card:
            card_require(arguments.device)
        check(arguments.device, arguments.sizes, Figures(Path(path) if path else None))
    except Skipped as reason:
        print(reason, flush=True)
        sys.exit(SKIPPED_STATUS)


def card_require(device: str) -> None:
    """Raise Skipped if a GPU is wanted and torch sees none."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise Skipped("torch sees no CUDA device: NOTHING WAS RUN ON A GPU")


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Yield a function that returns the seconds so far; after the block, those of the block."""
    started_s = time.monotonic()
    ended_s: list[float] = []
    yield lambda: round((ended_s[0] if ended_s else time.monotonic()) - started_s, 3)
    ended_s.append(time.monotonic())
