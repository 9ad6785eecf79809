"""Measures what training and rollout need when a model or a context outgrows one device.

Each part is a module of this package with a coroutine `measure()` that returns rows; it is imported only when it runs.
`python -m tests.benchmarks scale_out` runs all of them, `python -m tests.benchmarks.scale_out PART…` only some.
"""

import importlib
from collections.abc import Sequence

from tests.benchmarks.report import Row

PARTS = ("loading", "publication", "sequence", "training")


async def measure(parts: Sequence[str] = PARTS) -> list[Row]:
    rows: list[Row] = []
    for part in parts:
        rows += await importlib.import_module(f"{__name__}.{part}").measure()
    return rows
