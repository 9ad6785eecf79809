"""(a) and (e): several jobs on one fleet, against each of them alone and against machines of their own.

Takes the figures of all sides and rounds; returns rows. Each ratio is that of one round, and the worst round counts.
"""

from collections.abc import Mapping, Sequence

from tests.benchmarks.cluster.journal import Entry
from tests.benchmarks.cluster.rounds import Outcome
from tests.benchmarks.fleet.jobs import PROMPT_TOKEN_S, FleetJob
from tests.benchmarks.fleet.observing import HAND_OVER, IDLE, Seen
from tests.benchmarks.fleet.running import Fleet
from tests.benchmarks.fleet.sides import AHEAD, ALONE, NUM_MACHINES, SHARED, SPLITS, Side
from tests.benchmarks.report import Bound, Goal, Measured, Row

USEFUL, IDLE_SHARE, MOVING = "useful share", "idle", "hand-overs and prompts read again"
SUM_GOAL, SPLIT_GOAL, USEFUL_GOAL, AHEAD_GOAL = 2.2, 1.08, 0.75, 0.93
IDLE_GOAL, MOVING_GOAL, MOVING_AHEAD_GOAL = 0.02, 0.12, 0.05
GAIN = "sum of rates by rates alone"
SPLIT_GAIN = f"{GAIN}, to the best split's"
MEANINGS = {
    GAIN: "Three synchronous jobs share eight machines: the sum of each job's rate by its rate alone on all machines.",
    SPLIT_GAIN: "That sum, by the same sum of the better of two splits that give each job machines of its own.",
    USEFUL: "The sum of each job's rate by what eight machines that only work would reach for it alone.",
    IDLE_SHARE: "Share of the machines' time in which they did nothing.",
    MOVING: "Share of the machines' time that went into hand-overs, and into prompts that another engine read again.",
}
TOLD_MEANING = "No goal is about this figure; it tells what the side did, all rounds together."
LOWEST, HIGHEST = Bound.AT_LEAST, Bound.AT_MOST
GOALS = (
    (USEFUL, SHARED, USEFUL_GOAL, LOWEST),
    (USEFUL, AHEAD, AHEAD_GOAL, LOWEST),
    (IDLE_SHARE, AHEAD, IDLE_GOAL, HIGHEST),
    (MOVING, SHARED, MOVING_GOAL, HIGHEST),
    (MOVING, AHEAD, MOVING_AHEAD_GOAL, HIGHEST),
)
SAID = {SHARED: "synchronous", AHEAD: "staleness 3"}
Figures = Mapping[str, float]


def measured(fleet: Fleet, side: Side) -> Outcome:
    seen = fleet.measure(side)
    return Outcome(figures_of(side, seen), seen.time_shares, {})


def rate_of(job: FleetJob) -> str:
    return f"{job.name}, trained tokens/s"


def figures_of(side: Side, seen: Seen) -> dict[str, float]:
    """Return the useful share, the lost ones, and the rate of each job."""
    rates = dict(zip(side.jobs, seen.rates.values(), strict=True))
    read_s = seen.num_read_again * PROMPT_TOKEN_S
    return {
        USEFUL: sum(rate / job.bound(NUM_MACHINES) for job, rate in rates.items()),
        IDLE_SHARE: seen.share(IDLE),
        MOVING: seen.share(*HAND_OVER) + read_s / (seen.duration_s * seen.num_machines),
        "prompts read again": read_s / (seen.duration_s * seen.num_machines),
        "hand-overs per minute": 60 * len(seen.hand_overs_s) / seen.duration_s,
        **{rate_of(job): rate for job, rate in rates.items()},
    }


def rows_of(entries: Sequence[Entry]) -> list[Row]:
    """Return the rows that the measured sides allow: the short form has few of them."""
    rounds = _by_round(entries)
    return [
        *_judged(GAIN, GAIN, [_gain(one) for one in rounds], SUM_GOAL, LOWEST),
        *_judged(SPLIT_GAIN, SPLIT_GAIN, [_to_split(one) for one in rounds], SPLIT_GOAL, LOWEST),
        *(
            row
            for figure, side, limit, bound in GOALS
            for row in _judged(
                figure, f"{figure}, {SAID[side]}", _figures(rounds, side, figure), limit, bound
            )
        ),
        *_told(entries),
    ]


def _by_round(entries: Sequence[Entry]) -> list[dict[str, Figures]]:
    rounds: dict[int, dict[str, Figures]] = {}
    for entry in entries:
        rounds.setdefault(entry.round, {})[entry.side] = entry.figures
    return [rounds[number] for number in sorted(rounds)]


def _figures(rounds: Sequence[Mapping[str, Figures]], side: Side, name: str) -> list[float | None]:
    return [one[side.name][name] if side.name in one else None for one in rounds]


def _gain(sides: Mapping[str, Figures], side: Side = SHARED) -> float | None:
    """Return the sum of a side's rates by the rates that its jobs have alone on all machines."""
    if side.name not in sides or any(one.name not in sides for one in ALONE):
        return None
    return sum(
        sides[side.name][rate_of(job)] / sides[alone.name][rate_of(job)]
        for alone in ALONE
        for job in alone.jobs
    )


def _to_split(sides: Mapping[str, Figures]) -> float | None:
    shared, splits = _gain(sides), [gain for side in SPLITS if (gain := _gain(sides, side)) is not None]
    return None if shared is None or not splits else shared / max(splits)


def _judged(
    figure: str, metric: str, values: Sequence[float | None], limit: float, bound: Bound
) -> list[Row]:
    """Return a row whose value is the worst round's; none if no round measured it."""
    known = [value for value in values if value is not None]
    if not known:
        return []
    worst = min(known) if bound is Bound.AT_LEAST else max(known)
    one, every = Measured([worst], min_repeats=1), Measured(known, min_repeats=1)
    return [Row(f"{metric}, worst round", "", one, "all rounds", every, Goal(limit, bound), MEANINGS[figure])]


def _told(entries: Sequence[Entry]) -> list[Row]:
    """Return what no goal is about: each side's useful share and rates, relative to what its jobs reach alone."""
    rows = []
    for side in dict.fromkeys(entry.side for entry in entries):
        of_side = [entry.figures for entry in entries if entry.side == side]
        for name in of_side[0]:
            values = Measured([figures[name] for figures in of_side], min_repeats=1)
            rows.append(Row(f"{side}: {name}", "", values, "itself", values, meaning=TOLD_MEANING))
    return rows
