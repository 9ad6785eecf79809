"""What the benchmark reads of the job, and the rows that it makes of it.

Takes what the REST API told of the finished job, and what was measured beside it. Pure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from tests.benchmarks.report import MIN_REPEATS, Bound, Goal, Measured, Row

Z_95 = 1.959964  # the 97.5 % quantile of the normal distribution
GB = 1e9
MISMATCH, MISMATCH_MEAN = "train/mismatch_max", "train/mismatch_mean"
SAMPLING, STEP_SPEED = "perf/rollout_tokens_per_s", "perf/train_step_tokens_per_s"
STEP_S, REWARD = "train/step_s", "reward/mean"
METRICS = (MISMATCH, MISMATCH_MEAN, SAMPLING, STEP_SPEED, STEP_S, REWARD)
MISMATCH_GOAL = Goal(1e-3, Bound.AT_MOST)
MEMORY_GOAL = Goal(4, Bound.AT_MOST)  # GB
TIME_GOAL = Goal(40, Bound.AT_MOST)  # minutes
SHARE_OF_ENDS = 0.1  # of the updates, at either end, whose rewards are compared


@dataclass(frozen=True, slots=True)
class Reading:
    points: Mapping[str, Sequence[float]]  # by metric, one value for each update that has it
    published_s: Sequence[float]  # of the versions, in order
    before: Mapping[str, Any]  # the evaluation of the base model, as REST tells it
    after: Mapping[str, Any]
    weights_bytes: int
    work_bytes: int  # peak of engines and trainer
    whole_bytes: int  # peak of the installation
    submission_s: float
    whole_s: float


def wilson(num_right: int, num_asked: int, *, z: float = Z_95) -> tuple[float, float]:
    """Return the interval of a share that was seen as `num_right` of `num_asked` (Wilson, JASA 22, 1927): by default
    the 95 % interval. It contains the share, also at 0 and 1."""
    share, squared = num_right / num_asked, z * z
    scale = 1 + squared / num_asked
    centre = (share + squared / (2 * num_asked)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / num_asked + squared / (4 * num_asked**2))
    return max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share))


def rows_of(reading: Reading) -> list[Row]:
    return [*_speed_rows(reading), _mismatch_row(reading), *_reward_rows(reading), *_cost_rows(reading)]


def _speed_rows(reading: Reading) -> list[Row]:
    points = reading.points
    return [
        Row(
            "sampled tokens, from batch to batch",
            "tokens/s",
            _each(points[SAMPLING]),
            "computed tokens of a training step",
            _each(points[STEP_SPEED]),
            meaning="The engines wait while the trainer works (on policy), and this time counts for them. A step "
            "computes prompts and answers, those of a group as one tree.",
        ),
        Row(
            "sampled tokens of the held-out tasks, after",
            "tokens/s",
            _each([_tokens_per_s(reading.after)]),
            "before",
            _each([_tokens_per_s(reading.before)]),
            meaning="From the first session to the last outcome. The first training sessions are sampled beside those "
            "before, and nothing beside those after.",
        ),
        Row(
            "an update",
            "s",
            _each([later - earlier for earlier, later in pairwise(reading.published_s)]),
            "its training step",
            _each(points[STEP_S]),
            meaning="From publication to publication.",
        ),
    ]


def _mismatch_row(reading: Reading) -> Row:
    num_updates = len(reading.points[MISMATCH])
    return Row(
        "largest difference of a token's logprob",
        "nats",
        _each([max(reading.points[MISMATCH])]),
        "its mean",
        _each(reading.points[MISMATCH_MEAN]),
        MISMATCH_GOAL,
        f"Between engine and trainer, over all compared tokens of {num_updates} updates; the spread of the mean is "
        "over updates.",
    )


def _reward_rows(reading: Reading) -> list[Row]:
    rewards = reading.points[REWARD]
    num_ends = max(1, round(SHARE_OF_ENDS * len(rewards)))
    versions = "{min_version} to {max_version}".format_map(reading.before)
    return [
        Row(
            "held-out tasks solved, after",
            "share",
            _interval(reading.after),
            "before",
            _interval(reading.before),
            meaning=f"Of {reading.after['num_rewarded']} tasks, one greedy answer each. The spread is the 95 % "
            f"interval (Wilson). The answers before were sampled by versions {versions}.",
        ),
        Row(
            "reward of the last updates",
            "mean",
            _each(rewards[-num_ends:]),
            "of the first",
            _each(rewards[:num_ends]),
            meaning=f"Of training sessions, {num_ends} of {len(rewards)} updates at either end.",
        ),
    ]


def _cost_rows(reading: Reading) -> list[Row]:
    work = _each([reading.work_bytes / GB])
    return [
        Row(
            "engines and trainer, peak",
            "GB",
            work,
            "the weights in float32",
            _each([reading.weights_bytes / GB]),
            MEMORY_GOAL,
            "Proportional set sizes: what processes share counts once.",
        ),
        Row(
            "the whole installation, peak",
            "GB",
            _each([reading.whole_bytes / GB]),
            "engines and trainer",
            work,
        ),
        Row(
            "the whole benchmark",
            "min",
            _each([reading.whole_s / 60]),
            "submission, with the conversion",
            _each([reading.submission_s / 60]),
            TIME_GOAL,
        ),
    ]


def _each(values: Sequence[float]) -> Measured:
    """Show every value that there is, also if it is the only one."""
    return Measured(values, min_repeats=min(len(values), MIN_REPEATS) or 1)


def _interval(evaluation: Mapping[str, Any]) -> Measured:
    num_asked = evaluation["num_rewarded"]
    num_right = round(evaluation["reward_mean"] * num_asked)
    low, high = wilson(num_right, num_asked)
    return Measured([low, num_right / num_asked, high])


def _tokens_per_s(evaluation: Mapping[str, Any]) -> float:
    began, ended = (datetime.fromisoformat(evaluation[name]) for name in ("started_at", "ended_at"))
    return float(evaluation["num_sampled_tokens"] / (ended - began).total_seconds())
