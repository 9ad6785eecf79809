"""The multiplexing benchmark's own arithmetic and what it forces: bound, rows, lengths, sides."""

import json
from pathlib import Path

import pytest

from tests.benchmarks.cluster.layouts import MULTIPLEXED, SIDES, SYNCHRONOUS, UNBOUNDED, machines_of, tags_of
from tests.benchmarks.cluster.long_tail import MAX_TOKENS, MIN_TOKENS, tasks_write
from tests.benchmarks.cluster.observing import Window
from tests.benchmarks.cluster.workloads import REAL
from tests.benchmarks.multiplexing import GAP, METRICS, ROLLOUT_S, THROUGHPUT, TRAIN_S, gap_to_bound, rows_of
from tests.benchmarks.report import Measured


def measured(**values: float) -> dict[str, Measured]:
    return {metric: Measured([values.get(metric, 1.0)] * 3) for metric in METRICS}


def test_the_gap_is_what_is_missing_to_machines_that_only_work() -> None:
    # 300 and 100 machine seconds per million tokens: two machines make 5,000 tokens a second at most.
    alone = measured(**{ROLLOUT_S: 300.0, TRAIN_S: 100.0})
    assert gap_to_bound(measured(**{THROUGHPUT: 4000.0}), alone, 2).median == pytest.approx(20.0)
    assert gap_to_bound(measured(**{THROUGHPUT: 5000.0}), alone, 2).median == pytest.approx(0.0)


def test_each_side_has_every_metric_against_the_synchronous_baseline() -> None:
    samples = {side.name: measured() for side in (MULTIPLEXED, SYNCHRONOUS, UNBOUNDED)}
    rows = rows_of(REAL[0], samples)
    assert len(rows) == 3 * (len(METRICS) + 1)
    assert {row.baseline for row in rows} == {SYNCHRONOUS.name}
    assert sum(GAP in row.metric for row in rows) == 3


def test_shares_are_of_all_machines_time() -> None:
    window = Window(
        duration_s=10.0,
        num_machines=2,
        num_versions=3,
        num_trained_tokens=900.0,
        num_sampled_tokens=1000.0,
        num_settled_tokens=1000.0,
        step_s=2.0,
        seconds={("idle", "no_batch"): 1.0, ("idle", "no_requests"): 2.0, ("serving", ""): 17.0},
        cpu_s={"web": 1.0, "gateway": 3.0, "supervisor": 9.0},
    )
    assert window.share("idle") == pytest.approx(0.15)
    assert window.cpu_share(["web", "gateway"], num_cores=4) == pytest.approx(0.1)
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
