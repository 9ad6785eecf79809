"""The single trials: which there are, and a row for each of their figures, with its goal and what it means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.cluster.journal import Entry
from tests.benchmarks.fleet import arrivals, faults, projects, sharing, warm
from tests.benchmarks.fleet.arrivals import Trial
from tests.benchmarks.fleet.jobs import JOBS, SHORT_JOBS
from tests.benchmarks.fleet.sides import GANG, NUM_MACHINES
from tests.benchmarks.report import Bound, Goal, Measured, Quantity, Row

WEIGHED_S = 45.0
CROWD, CROWD_S = 29, 1200.0
NUM_URGENT = 20
EMPTY, FULL, WEIGHTS, URGENT, CROWDED = (
    "a job on an empty fleet",
    "a job on a full fleet",
    "weights 1:1:2",
    "urgent jobs",
    "29 jobs against one",
)
BAD_MACHINE, POISON, LOST, WARM = "a failing machine", "a poison job", "three machines lost", "six warm jobs"
ARRIVALS = (
    Trial(EMPTY, arrivals.newcomer_alone),
    Trial(FULL, arrivals.newcomer_to_full_fleet),
    Trial(WEIGHTS, partial(arrivals.shares_by_weight, duration_s=WEIGHED_S)),
    Trial(URGENT, partial(arrivals.urgent_jobs, num_jobs=NUM_URGENT)),
    Trial(CROWDED, partial(projects.crowd_against_one, num_jobs=CROWD, observed_s=CROWD_S)),
)
FAULTS = (
    Trial(BAD_MACHINE, faults.failing_machine),
    Trial(POISON, faults.poison_job),
    Trial(LOST, faults.machines_lost),
    Trial(WARM, warm.more_jobs_than_stay_warm),
)
GANGS = (Trial(GANG.name, partial(sharing.measured, side=GANG)),)
# No goal is about it: steps of a second say little about rates.
SHORT_FAULTS = (
    Trial("a poison job beside short ones", partial(faults.poison_job, jobs=SHORT_JOBS, observed_s=20.0)),
)
AT_LEAST, AT_MOST = Bound.AT_LEAST, Bound.AT_MOST
FIRST_TOKEN_GOAL = Goal(1.5, AT_MOST, of=Quantity.RATIO)


@dataclass(frozen=True, slots=True)
class Aim:
    """A figure of a trial, its goal, and what it means."""

    trial: str
    figure: str
    limit: float
    bound: Bound
    meaning: str


AIMS = (
    Aim(FULL, arrivals.HELD, NUM_MACHINES / len(JOBS) - 1, AT_LEAST,
        "Machines of the third job one median hand-over after it was first served; its share of eight, less one."),
    Aim(WEIGHTS, arrivals.LEAST, 0.9, AT_LEAST,
        "Three projects of weights 1, 1 and 2, all backlogged: the smallest ratio of machine seconds in the ledger to "
        "the project's entitlement."),
    Aim(WEIGHTS, arrivals.LEFT, 3.0, AT_MOST,
        "The heaviest project's job is paused: how long until its machines work for others, in median hand-overs, "
        "without the last machine, on which agents end their episodes."),
    Aim(URGENT, arrivals.TURNED, 3.0, AT_MOST,
        "Urgent jobs are submitted one after another: how long machines that rolled out for two other jobs took until "
        "they were free, in median hand-overs. The start of the new engine is apart."),
    Aim(URGENT, arrivals.FAILED_STEPS, 0.0, AT_MOST,
        "Training phases of the two other jobs that failed: machines turn at the end of a step."),
    Aim(CROWDED, arrivals.LEAST, 0.9, AT_LEAST,
        "29 jobs of one project hold two machines when one job of another comes: the smallest ratio of a project's "
        "machine seconds, over the 20 minutes from the other's first turn on, to its half."),
    Aim(BAD_MACHINE, faults.BAD_FAILURES, 3.0, AT_MOST,
        "One machine of eight starts no engine and no trainer: its failed phases until it was quarantined."),
    Aim(BAD_MACHINE, faults.BAD_RATE, 0.9, AT_LEAST,
        "What two jobs train beside the failing machine, by what they trained on the seven others just before."),
    Aim(POISON, faults.POISON_RATE, 0.9, AT_LEAST,
        "What two jobs train in the time after a job is submitted that fails on every machine, by what they trained "
        "just before."),
    Aim(POISON, faults.POISON_PAUSED, 1.0, AT_LEAST,
        "Whether the job that fails on every machine has paused itself, with a reason."),
    Aim(LOST, faults.JOBS_HURT, 0.0, AT_MOST,
        "All processes of three machines of eight stop at once: jobs that ended or paused for it. (Eleven of thirty "
        "are lost in `test_scheduling_judging`, in simulated time.)"),
    Aim(WARM, warm.APPLIED_TWICE, 0.0, AT_MOST,
        "Six jobs train on one machine, which keeps the processes of four: steps that trainers applied once more."),
    Aim(WARM, warm.NOT_APPLIED, 0.0, AT_MOST,
        "The same six jobs: published versions whose batch no trainer applied."),
    Aim(WARM, warm.STARTED_AGAIN, 1.0, AT_LEAST,
        "The same six jobs: trainers that were started for a job that had one before; without any, the two rows "
        "above show nothing."),
    Aim(GANG.name, sharing.USEFUL, sharing.USEFUL_GOAL, AT_LEAST,
        "Three synchronous jobs share eight machines, and one of them trains on two machines at once: the sum of each "
        "job's rate by what eight machines that only work would reach for it alone."),
)  # fmt: skip
FIRST_TOKEN_MEANING = (
    "From a job's submission until an engine served its first turn: a third job where two fill the fleet, by the same "
    "job on an empty one."
)
TOLD_MEANING = "No goal is about this figure; it tells how the trial went."


def rows_of(entries: Sequence[Entry]) -> list[Row]:
    """Return the rows that the measured trials allow; those with a goal come first."""
    figures = {entry.side: entry.figures for entry in entries}
    aims = [aim for aim in AIMS if aim.trial in figures]
    judged = {(aim.trial, aim.figure) for aim in aims}
    return [
        *_first_token(figures),
        *(_judged(aim, figures[aim.trial][aim.figure]) for aim in aims),
        *(
            _told(f"{trial}: {figure}", value)
            for trial, of_trial in figures.items()
            for figure, value in of_trial.items()
            if (trial, figure) not in judged and figure != arrivals.FIRST_TOKEN
        ),
    ]


def _first_token(figures: Mapping[str, Mapping[str, float]]) -> list[Row]:
    if EMPTY not in figures or FULL not in figures:
        return []
    full, empty = (_once(figures[trial][arrivals.FIRST_TOKEN]) for trial in (FULL, EMPTY))
    metric = "first served token on a full fleet"
    return [Row(metric, "s", full, "an empty fleet", empty, FIRST_TOKEN_GOAL, FIRST_TOKEN_MEANING)]


def _judged(aim: Aim, value: float) -> Row:
    measured = _once(value)
    return Row(
        f"{aim.trial}: {aim.figure}",
        "",
        measured,
        "itself",
        measured,
        Goal(aim.limit, aim.bound),
        aim.meaning,
    )


def _told(metric: str, value: float) -> Row:
    return Row(metric, "", _once(value), "itself", _once(value), meaning=TOLD_MEANING)


def _once(value: float) -> Measured:
    return Measured([value], min_repeats=1)
