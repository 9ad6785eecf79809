"""Run a benchmark from the repository's root: `python -m tests.benchmarks NAME`, or `python -m
tests.benchmarks soak --hours H`.

A benchmark prints its table to standard output and writes its JSON to build/bench/<name>.json (a
smoke test: <name>-short.json). If the name is unknown or missing, the command lists the names and
exits with status 2.
"""

import argparse
import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from tests.benchmarks.report import Row, machine_describe, meanings, report_write, table
from tests.benchmarks.soak import ACCEPTANCE, soak

RESULTS = Path("build/bench")
UNKNOWN_NAME = 2
GOAL_MISSED = 1
S_PER_HOUR = 3600

Benchmark = Callable[..., Awaitable[Sequence[Row]]]
JUDGED = frozenset({"faults", "poison", "stops"})  # a goal of theirs that is not met is a defect: status 1
WITH_SHORT_FORM = frozenset(
    {"aged", "fleet", "learning", "multiplexing", "poison", "real_model", "staleness"}
)


def _of_module(name: str) -> Benchmark:
    """Return the benchmark in the module of that name. It is imported only when it runs, because
    some load torch."""

    async def measure(**options: bool) -> Sequence[Row]:
        rows: Sequence[Row] = await importlib.import_module(f"tests.benchmarks.{name}").measure(**options)
        return rows

    return measure


BENCHMARKS: Mapping[str, Benchmark] = {
    name: _of_module(name)
    for name in (
        "aged",
        "algorithms",
        "calls",
        "control_plane",
        "cost",
        "dashboard",
        "engine",
        "faults",
        "fleet",
        "flood",
        "gateway",
        "gateways",
        "heartbeats",
        "learning",
        "multiplexing",
        "poison",
        "real_model",
        "scale_out",
        "scheduler",
        "staleness",
        "stops",
        "trajectories",
        "tree_training",
    )
}


def main(
    arguments: Sequence[str], *, benchmarks: Mapping[str, Benchmark] = BENCHMARKS, results: Path = RESULTS
) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("name", nargs="?", default="", help=", ".join([*benchmarks, "soak"]))
    parser.add_argument("--hours", type=float, default=1.0, help="of the soak")
    parser.add_argument("--short", action="store_true", help=f"a smoke test of {', '.join(WITH_SHORT_FORM)}")
    options = parser.parse_args(arguments)
    if options.name == "soak":
        return soak(ACCEPTANCE, duration_s=options.hours * S_PER_HOUR)
    if options.name not in benchmarks:
        said = f"there is no benchmark {options.name!r}; " if options.name else ""
        sys.stderr.write(f"bench: {said}NAME is one of: {' '.join(sorted(benchmarks))}\n")
        return UNKNOWN_NAME
    if options.short and options.name not in WITH_SHORT_FORM:
        sys.stderr.write(f"bench: {options.name} has no short form\n")
        return UNKNOWN_NAME
    name = f"{options.name}-short" if options.short else options.name
    rows = _run(name, benchmarks[options.name], results, **({"is_short": True} if options.short else {}))
    is_missed = options.name in JUDGED and any(row.is_met is False for row in rows)
    return GOAL_MISSED if is_missed else 0


def _run(name: str, benchmark: Benchmark, results: Path, **parameters: bool) -> Sequence[Row]:
    machine = machine_describe()

    async def rows_measured() -> Sequence[Row]:
        return await benchmark(**parameters)

    rows = asyncio.run(rows_measured())
    explained = f"{text}\n\n" if (text := meanings(rows)) else ""
    path = report_write(name, machine, rows, folder=results)
    sys.stdout.write(f"{name}: {machine}\n\n{table(rows)}\n\n{explained}written to {path}\n")
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
