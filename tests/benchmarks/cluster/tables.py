"""Shows the measured runs as Markdown: one row per side, and below it where its time and the cores
went."""

import statistics
from collections.abc import Mapping, Sequence

from tests.benchmarks.cluster.figures import UNITS, bound_of, columns_of
from tests.benchmarks.cluster.journal import Entry
from tests.benchmarks.cluster.workloads import Workload

MIN_SHARE = 0.003  # smaller ones are not told
PERCENT = "%"


def tables_of(entries: Sequence[Entry], workloads: Sequence[Workload]) -> str:
    """Return medians, with the lowest and highest value if there are several rounds."""
    sections = []
    for workload in workloads:
        of_workload = [entry for entry in entries if entry.workload == workload.name]
        if of_workload:
            sections.append(_section(workload, of_workload))
    return "\n".join(sections)


def _section(workload: Workload, entries: Sequence[Entry]) -> str:
    columns = columns_of(entries, num_machines=workload.num_machines)
    sides = list(dict.fromkeys(entry.side for entry in entries))
    num_rounds = len({entry.round for entry in entries})
    loads = [entry.load_before for entry in entries]
    bound = bound_of((entry.figures for entry in entries), num_machines=workload.num_machines)
    header = ["side", *(f"{metric}, {unit}" for metric, unit in UNITS.items())]
    rows = [[side, *(_cell(values.get(side, [])) for values in columns.values())] for side in sides]
    lines = [
        f"## {workload.name}",
        "",
        f"Bound: {bound:,.0f} tokens/s. Rounds: {num_rounds}. Load before a run: {min(loads):.1f} to {max(loads):.1f}.",
        "",
        _table_row(header),
        _table_row(["---"] * len(header)),
        *map(_table_row, rows),
        "",
    ]
    for side in sides:
        of_side = [entry for entry in entries if entry.side == side]
        time = _shares([entry.time_shares for entry in of_side])
        lines.append(f"* {side}: time: {time}; cores: {_shares([entry.cpu_shares for entry in of_side])}")
    return "\n".join([*lines, ""])


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    shown = _shown(statistics.median(values))
    return shown if len(values) == 1 else f"{shown} ({_shown(min(values))} to {_shown(max(values))})"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _shares(samples: Sequence[Mapping[str, float]]) -> str:
    """Return means over the rounds, the largest first."""
    names = {name for sample in samples for name in sample}
    means = {name: statistics.fmean(sample.get(name, 0.0) for sample in samples) for name in names}
    told = sorted((name for name in means if means[name] >= MIN_SHARE), key=lambda name: -means[name])
    return ", ".join(f"{name} {100 * means[name]:.1f} {PERCENT}" for name in told)


def _table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
