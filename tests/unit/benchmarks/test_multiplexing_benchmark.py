"""The multiplexing benchmark's own arithmetic and what it forces: bound, rows, lengths, sides."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from seamlessflow.core.job_spec import JobSpec
from tests.benchmarks.cluster.figures import (
    GAP,
    METRICS,
    ROLLOUT_S,
    THROUGHPUT,
    TRAIN_S,
    UNITS,
    bound_of,
    columns_of,
    outcome_of,
)
from tests.benchmarks.cluster.journal import Entry, Journal, digest_of
from tests.benchmarks.cluster.layouts import (
    MULTIPLEXED,
    SIDES,
    SYNCHRONOUS,
    UNBOUNDED,
    Side,
    machines_of,
    tags_of,
)
from tests.benchmarks.cluster.long_tail import MAX_TOKENS, MIN_TOKENS, tasks_write
from tests.benchmarks.cluster.observing import Window
from tests.benchmarks.cluster.rounds import Outcome, Step, remaining_s, rounds_run, steps_of
from tests.benchmarks.cluster.running import Cluster, RunFailed
from tests.benchmarks.cluster.tables import tables_of
from tests.benchmarks.cluster.workloads import PACED, REAL, WORKLOADS, Workload
from tests.benchmarks.multiplexing import rows_of

WINDOW = Window(
    duration_s=10.0,
    num_machines=2,
    num_versions=3,
    num_trained_tokens=900.0,
    num_sampled_tokens=1000.0,
    num_finalized_tokens=1000.0,
    step_s=2.0,
    seconds={("idle", "no_batch"): 1.0, ("idle", "no_requests"): 2.0, ("serving", ""): 17.0},
    cpu_shares={"web": 0.1, "gateway": 0.3, "supervisor-machine-0": 0.9},
)


def figures(values: Mapping[str, float] | None = None) -> dict[str, float]:
    return {**dict.fromkeys(METRICS, 1.0), **(values or {})}


def entry(
    side: Side, values: Mapping[str, float] | None = None, *, round_number: int = 0, took_s: float = 1.0
) -> Entry:
    return Entry(
        workload=REAL[0].name,
        side=side.name,
        round=round_number,
        figures=figures(values),
        time_shares=WINDOW.time_shares(),
        cpu_shares=dict(WINDOW.cpu_shares),
        took_s=took_s,
        load_before=0.5,
        ended_at="2026-01-01T00:00:00+00:00",
    )


def test_the_bound_is_that_of_machines_that_only_work() -> None:
    # 300 and 100 machine seconds per million tokens: two machines make 5,000 tokens a second at most.
    assert bound_of([figures({ROLLOUT_S: 300.0, TRAIN_S: 100.0})], num_machines=2) == pytest.approx(5000.0)


def test_the_gap_is_measured_from_the_cheapest_cost_of_the_work() -> None:
    entries = [
        entry(UNBOUNDED, {ROLLOUT_S: 300.0, TRAIN_S: 150.0, THROUGHPUT: 2500.0}),
        entry(MULTIPLEXED, {ROLLOUT_S: 400.0, TRAIN_S: 100.0, THROUGHPUT: 4000.0}),
        entry(MULTIPLEXED, {ROLLOUT_S: 390.0, TRAIN_S: 110.0, THROUGHPUT: 4500.0}, round_number=1),
    ]
    gaps = columns_of(entries, num_machines=2)[GAP]
    assert gaps[MULTIPLEXED.name] == pytest.approx([20.0, 10.0])
    assert gaps[UNBOUNDED.name] == pytest.approx([50.0])


def test_each_side_has_every_metric_relative_to_the_synchronous_baseline() -> None:
    sides = (MULTIPLEXED, SYNCHRONOUS, UNBOUNDED)
    entries = [entry(side, round_number=number) for side in sides for number in range(REAL[0].num_rounds)]
    rows = rows_of(REAL[0], entries)
    assert len(rows) == 3 * len(UNITS)
    assert {row.baseline for row in rows} == {SYNCHRONOUS.name}
    assert sum(GAP in row.metric for row in rows) == 3


def test_tables_show_what_is_measured_so_far() -> None:
    table = tables_of([entry(MULTIPLEXED, {THROUGHPUT: 1234.0})], WORKLOADS)
    assert f"## {REAL[0].name}" in table
    assert PACED[0].name not in table
    assert "| multiplexed | 1,234 |" in table
    assert "idle: no_requests 10.0 %" in table
    assert "gateway 30.0 %" in table


def test_shares_are_shares_of_the_time_of_all_machines() -> None:
    window = WINDOW
    assert window.share("idle") == pytest.approx(0.15)
    assert window.time_shares()["idle: no_batch"] == pytest.approx(0.05)
    assert window.cpu_share(["web", "gateway"], num_cores=4) == pytest.approx(0.1)
    assert window.machines_cpu_s == pytest.approx(9.0)
    assert METRICS["discarded"][1](window) == pytest.approx(10.0)
    assert METRICS[ROLLOUT_S][1](window) == pytest.approx(17_000.0)


def test_forced_lengths_have_a_long_tail_and_are_the_same_for_one_seed(tmp_path: Path) -> None:
    first = tasks_write(tmp_path / "a", num_tasks=200, group_size=8, telling_every=4, seed=3).read_text()
    assert (
        tasks_write(tmp_path / "b", num_tasks=200, group_size=8, telling_every=4, seed=3).read_text() == first
    )
    tasks = [json.loads(line) for line in first.splitlines()]
    lengths = sorted(length for task in tasks for length in task["lengths"])
    assert lengths[0] >= MIN_TOKENS
    assert lengths[-1] <= MAX_TOKENS
    assert lengths[int(0.99 * len(lengths))] > 5 * lengths[len(lengths) // 2]
    assert [len(set(task["rewards"])) > 1 for task in tasks] == [number % 4 == 0 for number in range(200)]


def test_a_side_is_an_assignment_of_tags() -> None:
    first, second, runner = machines_of(2, module="any", is_pinned=True)
    for side in SIDES:
        assert tags_of(side, runner) == ["agent"]
        assert "rollout" in tags_of(side, second)
        assert "train" in tags_of(side, first)
    assert tags_of(MULTIPLEXED, first) == ["rollout", "train"]
    assert tags_of(SYNCHRONOUS, first) == ["train"]
    assert (first.core, second.core, runner.core) == (0, 1, None)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_jobs_have_no_reference_model_and_no_end(workload: Workload, tmp_path: Path) -> None:
    spec = JobSpec.model_validate(workload.spec(tmp_path, tmp_path / "tasks", max_staleness=1))
    assert not spec.algorithm.needs_reference
    assert spec.algorithm.max_staleness == 1
    assert spec.train.num_updates > 100 * workload.num_versions


def test_every_round_measures_each_side_and_every_other_round_runs_backwards() -> None:
    steps = steps_of([(workload, (MULTIPLEXED, SYNCHRONOUS)) for workload in (REAL[0], PACED[0])])
    assert [str(step) for step in steps] == [
        "real, 1:1; multiplexed; round 1",
        "real, 1:1; disaggregated, synchronous; round 1",
        "paced, 8 machines, 7:1; multiplexed; round 1",
        "paced, 8 machines, 7:1; disaggregated, synchronous; round 1",
        "real, 1:1; disaggregated, synchronous; round 2",
        "real, 1:1; multiplexed; round 2",
    ]


def test_remaining_runs_are_expected_to_take_as_long_as_in_another_round() -> None:
    entries = [entry(MULTIPLEXED, took_s=10.0), entry(SYNCHRONOUS, took_s=30.0)]
    remaining = [Step(REAL[0], SYNCHRONOUS, 1), Step(REAL[0], UNBOUNDED, 0)]
    assert remaining_s(remaining, entries) == pytest.approx(30.0 + 20.0)


class Runs:
    """Stands for installations and runs; `failures` says how often a side fails."""

    def __init__(self, **failures: int) -> None:
        self.failures = failures
        self.measured: list[str] = []
        self.num_clusters = 0

    @asynccontextmanager
    async def cluster_of(self, workload: Workload) -> AsyncIterator[Cluster]:
        self.num_clusters += 1
        yield cast(Any, None)

    async def run_of(self, cluster: Cluster, workload: Workload, side: Side) -> Outcome:
        if self.failures.get(side.name, 0):
            self.failures[side.name] -= 1
            raise RunFailed("the job failed")
        self.measured.append(side.name)
        return outcome_of(WINDOW)

    async def measure(self, journal: Journal) -> None:
        steps = [Step(REAL[0], side, 0) for side in (MULTIPLEXED, SYNCHRONOUS, UNBOUNDED)]
        await rounds_run(
            steps, journal, cluster_of=self.cluster_of, run_of=self.run_of, after_each=lambda: None
        )


async def test_a_run_that_failed_is_tried_again_on_a_new_installation(tmp_path: Path) -> None:
    journal, runs = Journal(tmp_path, digest="a"), Runs(multiplexed=1)
    await runs.measure(journal)
    assert runs.measured == [SYNCHRONOUS.name, UNBOUNDED.name, MULTIPLEXED.name]
    assert runs.num_clusters == 3
    assert len(journal.entries) == 3


async def test_measured_runs_are_kept_and_not_measured_again(tmp_path: Path) -> None:
    runs = Runs(multiplexed=2)
    with pytest.raises(RunFailed, match=r"failed 2 times: real, 1:1; multiplexed; round 1;"):
        await runs.measure(Journal(tmp_path, digest="a"))
    runs.measured.clear()
    path = Journal(tmp_path, digest="a").path
    with path.open("ab") as file:
        file.write(b'{"workload": "cut by a crash')
    journal = Journal(tmp_path, digest="a")
    assert [entry.side for entry in journal.entries] == [SYNCHRONOUS.name, UNBOUNDED.name]
    await runs.measure(journal)
    assert runs.measured == [MULTIPLEXED.name]
    assert len(Journal(tmp_path, digest="a").entries) == 3


def test_other_code_or_a_finished_journal_begins_a_new_one(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "a.py").write_text("x = 1")
    before = digest_of("settings", [code])
    assert digest_of("settings", [code]) == before
    (code / "a.py").write_text("x = 2")
    assert digest_of("settings", [code]) != before

    journal = Journal(tmp_path, digest=before)
    journal.append(entry(MULTIPLEXED))
    assert Journal(tmp_path, digest="other").entries == []
    kept = journal.put_aside()
    assert len(kept.read_text().splitlines()) == 1
    assert Journal(tmp_path, digest=before).entries == []
