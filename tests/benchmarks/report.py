"""The results of a benchmark: rows compared with a named baseline, as a table for people and as
JSON for programs.

It takes measured values, at least three for each side of a row unless a benchmark asks for fewer. A
row's value is their median, and its spread the lowest and the highest. A goal that is not met is
shown as not met; nothing here judges wall time.
"""

import math
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

MIN_REPEATS = 3
HEADER = ("metric", "value", "spread", "unit", "baseline", "its value", "its spread", "ratio", "goal", "met")


class TooFewRepeats(ValueError):
    """The row has too few repeats to show a spread."""


class Bound(StrEnum):
    AT_LEAST = "≥"
    AT_MOST = "≤"


class Quantity(StrEnum):
    VALUE = "value"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True)
class Goal:
    """What the design asks of a row."""

    limit: float
    bound: Bound = Bound.AT_LEAST
    of: Quantity = Quantity.VALUE

    def is_met(self, *, value: float, ratio: float) -> bool:
        actual = value if self.of is Quantity.VALUE else ratio
        return actual >= self.limit if self.bound is Bound.AT_LEAST else actual <= self.limit

    def __str__(self) -> str:
        return f"{self.of if self.of is Quantity.RATIO else ''} {self.bound} {_shown(self.limit)}".strip()


@dataclass(frozen=True, slots=True)
class Measured:
    """One side of a row: a value per repeat. Where a repeat takes minutes, a benchmark may ask for
    fewer of them."""

    values: Sequence[float]
    min_repeats: int = MIN_REPEATS

    def __post_init__(self) -> None:
        if len(self.values) < self.min_repeats:
            raise TooFewRepeats(f"a row needs at least {self.min_repeats} repeats, got {len(self.values)}")

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.values), max(self.values)


@dataclass(frozen=True, slots=True)
class Row:
    """`ratio` is value / baseline_value, whichever direction is better for the metric; it is NaN if
    the baseline is 0."""

    metric: str
    unit: str
    measured: Measured
    baseline: str
    baseline_measured: Measured
    goal: Goal | None = None
    meaning: str = ""  # in sentences; empty if the name of the metric says it

    @property
    def ratio(self) -> float:
        baseline = self.baseline_measured.median
        return self.measured.median / baseline if baseline else math.nan

    @property
    def is_met(self) -> bool | None:
        return self.goal.is_met(value=self.measured.median, ratio=self.ratio) if self.goal else None

    def record(self) -> dict[str, object]:
        return {
            "metric": self.metric,
            "value": self.measured.median,
            "spread": self.measured.spread,
            "unit": self.unit,
            "baseline": self.baseline,
            "baseline_value": self.baseline_measured.median,
            "baseline_spread": self.baseline_measured.spread,
            "ratio": self.ratio,
            "goal": str(self.goal) if self.goal else None,
            "met": self.is_met,
            "meaning": self.meaning,
        }

    def cells(self) -> tuple[str, ...]:
        met = {None: "-", True: "yes", False: "not met"}[self.is_met]
        return (
            self.metric,
            _shown(self.measured.median),
            _shown_spread(self.measured),
            self.unit,
            self.baseline,
            _shown(self.baseline_measured.median),
            _shown_spread(self.baseline_measured),
            f"{self.ratio:.3g}",
            str(self.goal or "-"),
            met,
        )


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that was measured on, and how busy it was with other things just before."""

    processor: str
    num_cores: int
    load_1m: float
    python: str

    def __str__(self) -> str:
        return f"{self.num_cores} cores of {self.processor}, Python {self.python}, load before {self.load_1m:.2f}"


def machine_describe() -> Machine:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return Machine(
        processor=next(names, platform.machine()),
        num_cores=len(os.sched_getaffinity(0)),
        load_1m=os.getloadavg()[0],
        python=platform.python_version(),
    )


def table(rows: Sequence[Row]) -> str:
    """Return an aligned Markdown table."""
    lines = [HEADER, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    shown = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([shown[0], rule, *shown[1:]])


def meanings(rows: Sequence[Row]) -> str:
    """Return what the rows mean, a line for each meaning, with the first of the rows that it belongs to."""
    metrics: dict[str, list[str]] = {}
    for row in rows:
        metrics.setdefault(row.meaning, []).append(row.metric)
    metrics.pop("", None)
    return "\n".join(
        f"* {first}{f' (and {len(others)} more)' if others else ''}: {meaning}"
        for meaning, (first, *others) in metrics.items()
    )


def report_write(name: str, machine: Machine, rows: Sequence[Row], *, folder: Path) -> Path:
    """Write `<folder>/<name>.json` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    report = {"name": name, "machine": machine, "rows": [row.record() for row in rows]}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return path


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _shown_spread(measured: Measured) -> str:
    low, high = measured.spread
    return f"{_shown(low)} to {_shown(high)}"
