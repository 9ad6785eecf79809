"""The fleet benchmark's own arithmetic: bounds, splits, ratios of one round, the worst round, and what rows judge."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from seamlessflow.core.job_spec import JobSpec
from tests.benchmarks.cluster.journal import Entry
from tests.benchmarks.fleet import ARRIVALS, FAULTS, GANGS, faults, parts, rows_of
from tests.benchmarks.fleet.arrivals import FAILED_STEPS, FIRST_TOKEN, HELD, LEAST, LEFT, TURNED, percentile
from tests.benchmarks.fleet.faults import BAD_FAILURES, BAD_RATE, JOBS_HURT, POISON_PAUSED, POISON_RATE
from tests.benchmarks.fleet.jobs import JOBS, PROMPT_TOKEN_S, FleetJob
from tests.benchmarks.fleet.observing import Seen
from tests.benchmarks.fleet.sharing import GAIN, MOVING, USEFUL, figures_of, rate_of
from tests.benchmarks.fleet.sides import (
    AHEAD,
    ALONE,
    GANG,
    NUM_MACHINES,
    SHARED,
    SPLITS,
    estimated_gain,
    split,
)
from tests.benchmarks.fleet.trials import AIMS, BAD_MACHINE, EMPTY, FULL, LOST, POISON, WARM
from tests.benchmarks.fleet.warm import (
    APPLIED_TWICE,
    NOT_APPLIED,
    STARTED_AGAIN,
    num_missing,
    num_processes,
    num_twice,
)
from tests.benchmarks.report import Row
from tests.fakes.broken_machine import FOLDER, MACHINE, exit_if_broken, machine_break, machine_mend
from tests.fakes.pace import Pace, pace_environment, pace_read, pace_write
from tests.fakes.paced_step_engine import STEPS, steps_read

JOB_IDS = ("job-a", "job-b", "job-c")


def seen(rates: Mapping[str, float], **seconds: float) -> Seen:
    return Seen(
        duration_s=10.0,
        num_machines=NUM_MACHINES,
        rates=rates,
        seconds={("job-a", state): value for state, value in seconds.items()},
        time_shares={},
        num_read_again=4000.0,
        hand_overs_s=[0.5],
    )


def entry(
    side: str, figures: Mapping[str, float], *, workload: str = "sharing", round_number: int = 0
) -> Entry:
    return Entry(
        workload=workload,
        side=side,
        round=round_number,
        figures=dict(figures),
        time_shares={},
        cpu_shares={},
        took_s=1.0,
        load_before=0.0,
        ended_at="2026-01-01T00:00:00+00:00",
    )


def rates(*values: float) -> dict[str, float]:
    return {rate_of(job): value for job, value in zip(JOBS, values, strict=True)}


def one_round(shared: float, *, number: int) -> list[Entry]:
    """A round in which each job has a rate of 100 alone, 50 on a split and `shared` beside the others."""
    shares = {USEFUL: shared / 100, MOVING: 0.1}
    return [
        entry(SHARED.name, {**shares, **rates(shared, shared, shared)}, round_number=number),
        entry(SPLITS[0].name, {**shares, **rates(50, 50, 50)}, round_number=number),
        *(entry(side.name, {**shares, rate_of(side.jobs[0]): 100}, round_number=number) for side in ALONE),
    ]


def row(rows: list[Row], metric: str) -> Row:
    return next(one for one in rows if one.metric == f"{metric}, worst round")


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_is_bound_by_machines_that_only_work(job: FleetJob) -> None:
    machine_s = (job.rollout_token_s + job.train_token_s) * job.tokens_per_batch
    assert job.bound(NUM_MACHINES) == pytest.approx(NUM_MACHINES * job.tokens_per_batch / machine_s)
    assert job.rollout_token_s / job.train_token_s == pytest.approx(job.ratio)
    assert job.alone_rate(NUM_MACHINES) < job.bound(NUM_MACHINES)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_specs_are_valid_and_place_jobs_by_tag(job: FleetJob, tmp_path: Path) -> None:
    spec = JobSpec.model_validate(job.spec(tmp_path, tmp_path / "tasks", max_staleness=0, tag="of-one"))
    assert spec.placement.rollout == spec.placement.train == ["of-one"]
    assert spec.algorithm.max_staleness == 0


def test_a_gang_takes_the_same_machine_time_and_half_the_step(tmp_path: Path) -> None:
    gang, single = GANG.jobs[0], JOBS[0]
    assert JobSpec.model_validate(gang.spec(tmp_path, tmp_path, max_staleness=0)).train.num_machines == 2
    assert gang.bound(NUM_MACHINES) == single.bound(NUM_MACHINES)
    assert gang.alone_rate(NUM_MACHINES) > single.alone_rate(NUM_MACHINES)


def test_the_splits_that_are_measured_are_the_best_by_the_stated_costs() -> None:
    assert all(sum(side.split) == NUM_MACHINES == len(list(side.tags())) for side in SPLITS)
    worst = min(estimated_gain(side.split) for side in SPLITS)
    assert worst > estimated_gain((6, 1, 1))
    assert [tags[-1] for tags in split((6, 1, 1)).tags()].count("of-three-to-one") == 6


def test_the_useful_share_adds_rates_by_bounds_and_prompts_read_again_cost_time() -> None:
    bounds = {one: job.bound(NUM_MACHINES) for one, job in zip(JOB_IDS, JOBS, strict=True)}
    figures = figures_of(
        SHARED, seen({one: bound / 4 for one, bound in bounds.items()}, idle=8.0, draining=4.0)
    )
    assert figures[USEFUL] == pytest.approx(0.75)
    assert figures["idle"] == pytest.approx(0.1)
    assert figures[MOVING] == pytest.approx((4.0 + 4000 * PROMPT_TOKEN_S) / 80)


def test_the_worst_round_counts_and_each_ratio_is_of_one_round() -> None:
    rows = rows_of([*one_round(80, number=0), *one_round(70, number=1)])
    gain, to_split = row(rows, GAIN), row(rows, f"{GAIN}, to the best split's")
    assert gain.measured.median == pytest.approx(2.1)
    assert gain.is_met is False
    assert to_split.measured.median == pytest.approx(1.4)
    assert to_split.is_met
    assert row(rows, f"{MOVING}, synchronous").is_met


def test_a_side_that_was_not_measured_has_no_row() -> None:
    rows = rows_of([entry(SHARED.name, {USEFUL: 0.8, MOVING: 0.1, **rates(1, 1, 1)})])
    metrics = [one.metric for one in rows]
    assert not [metric for metric in metrics if metric.startswith(GAIN) or AHEAD.name in metric]


def test_arrivals_are_judged_by_their_goals() -> None:
    figures = {
        "a job on an empty fleet": {FIRST_TOKEN: 4.0},
        "a job on a full fleet": {FIRST_TOKEN: 7.0, HELD: 2.0},
        "weights 1:1:2": {LEAST: 0.95, LEFT: 4.0},
        "urgent jobs": {TURNED: 2.0, FAILED_STEPS: 0.0},
    }
    rows = rows_of([entry(side, values, workload=ARRIVALS) for side, values in figures.items()])
    assert [one.is_met for one in rows if one.goal] == [False, True, True, False, True, True]


def test_faults_are_judged_by_their_goals_and_other_figures_are_told() -> None:
    figures = {
        BAD_MACHINE: {BAD_FAILURES: 4.0, BAD_RATE: 0.95, "quarantined after, s": 9.0},
        POISON: {POISON_RATE: 0.85, POISON_PAUSED: 1.0},
        LOST: {JOBS_HURT: 0.0},
        WARM: {APPLIED_TWICE: 1.0, NOT_APPLIED: 0.0, STARTED_AGAIN: 0.0},
    }
    rows = rows_of([entry(side, values, workload=FAULTS) for side, values in figures.items()])
    judged, told = [one for one in rows if one.goal], [one for one in rows if not one.goal]
    assert [one.is_met for one in judged] == [False, True, False, True, True, False, True, False]
    assert [one.metric for one in told] == [f"{BAD_MACHINE}: quarantined after, s"]


def test_every_row_says_what_is_meant() -> None:
    figures = {aim.trial: {one.figure: 1.0 for one in AIMS if one.trial == aim.trial} for aim in AIMS}
    figures[FULL] |= {FIRST_TOKEN: 1.0}
    figures |= {EMPTY: {FIRST_TOKEN: 1.0}}
    rows = rows_of(
        [
            *one_round(70, number=0),
            entry(AHEAD.name, {USEFUL: 0.9, MOVING: 0.1, "idle": 0.1, **rates(1, 1, 1)}),
            *(entry(side, values, workload=FAULTS) for side, values in figures.items()),
        ]
    )
    assert [one.metric for one in rows if not one.meaning] == []
    assert len({one.meaning for one in rows if one.goal}) > len(AIMS)


def test_a_batch_that_was_applied_twice_is_seen_and_so_is_one_that_was_not_applied() -> None:
    applied = [(1, 10), (2, 10), (2, 11), (4, 11)]
    assert (num_twice(applied), num_missing(applied, 4), num_processes(applied)) == (1, 1, 2)


def test_trainers_note_their_steps_where_the_model_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / STEPS).write_text("3 17\n4 18\n")
    assert steps_read(tmp_path) == [(3, 17), (4, 18)]


def test_the_model_of_a_poison_job_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "endless").mkdir()
    model, _ = faults.POISON.write(tmp_path / "endless", tmp_path)
    with pytest.raises(msgspec.DecodeError):
        pace_read(model)


def test_programs_do_not_start_on_a_broken_machine_until_it_is_mended(tmp_path: Path) -> None:
    environ = {FOLDER: str(tmp_path), MACHINE: "node-1"}
    machine_break(tmp_path, "node-1")
    with pytest.raises(SystemExit, match="does not answer"):
        exit_if_broken(environ)
    exit_if_broken({**environ, MACHINE: "node-2"})
    machine_mend(tmp_path, "node-1")
    exit_if_broken(environ)


def test_each_part_of_the_benchmark_has_runs_and_the_short_form_has_few() -> None:
    assert {part.name for part, _ in parts(is_short=False)} == {"sharing", ARRIVALS, FAULTS, GANGS}
    assert sum(len(trials) for _, trials in parts(is_short=True)) == 3


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.95) == 3.0
    assert percentile([1.0], 0.5) == 1.0


def test_a_model_may_have_a_pace_of_its_own(tmp_path: Path) -> None:
    environ = pace_environment(Pace(step_s=1.0))
    assert pace_read(tmp_path, environ).step_s == 1.0
    pace_write(tmp_path, Pace(step_s=2.0, start_s=3.0))
    assert pace_read(tmp_path, environ) == Pace(step_s=2.0, start_s=3.0)
