"""How the benchmark of the planes' cost turns readings into rows."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks import cost
from tests.benchmarks.cost import (
    CALLS,
    COMMITS,
    OTHER,
    PLANES,
    WHOLE,
    Probe,
    Reading,
    base_rows_of,
    kind_of,
    reading_at,
    rows_of,
    stretch,
)
from tests.benchmarks.report import Measured


@pytest.mark.parametrize(
    "line, kind",
    [
        ("python -m seamlessflow.data_plane --port 1", "gateway"),
        ("python -m seamlessflow_workers.rollout.engine --uds x", "engines"),
        ("python -m seamlessflow_workers.supervisor.doorbell --machine a", "supervisors"),
        ("postgres: seamlessflow seamlessflow [local] COMMIT", "PostgreSQL"),
        ("python -m seamlessflow.cli up", OTHER),
    ],
)
def test_processes_are_distinguished_by_their_command_lines(line: str, kind: str) -> None:
    assert kind_of(line.split()) == kind


def test_a_stretch_counts_what_was_used_between_its_readings() -> None:
    before = Reading({"gateway": 1.0, "engines": 2.0}, num_updates=10, num_calls=100, num_commits=50)
    after = Reading(
        {"gateway": 1.5, "engines": 3.0, "web": 0.1}, num_updates=15, num_calls=150, num_commits=150
    )
    assert stretch(before, after) == pytest.approx(
        {"gateway": 100, "engines": 200, "web": 20, PLANES: 120, WHOLE: 320, CALLS: 10, COMMITS: 20}
    )


def test_rows_compare_updates_with_the_single_process_and_calls_with_the_total() -> None:
    ours = [{"gateway": 100.0, PLANES: 100.0, WHOLE: 300.0, CALLS: 10.0, COMMITS: 20.0}] * 3
    rows = {row.metric: row for row in rows_of(ours, Measured([200.0] * 3))}
    assert rows["gateway: an update"].ratio == pytest.approx(0.5)
    assert rows["gateway: a call"].measured.median == pytest.approx(10.0)
    assert rows["gateway: a call"].ratio == pytest.approx(1 / 3)
    assert rows["commits: an update"].ratio == pytest.approx(2.0)


def test_calls_are_compared_with_those_of_another_revision() -> None:
    ours = [{"gateway": 60.0, PLANES: 60.0, WHOLE: 200.0, CALLS: 10.0, COMMITS: 5.0}] * 3
    base = [{"gateway": 90.0, "web": 30.0, PLANES: 120.0, WHOLE: 260.0, CALLS: 8.0, COMMITS: 16.0}] * 3
    rows = {row.metric: row for row in base_rows_of(ours, base, "0123abc")}
    assert rows["the planes: a call, two revisions"].ratio == pytest.approx(0.4)
    assert rows["the planes: a call, two revisions"].is_met
    assert rows["web: a call, two revisions"].measured.median == 0.0
    assert rows["commits: a call, two revisions"].ratio == pytest.approx(0.25)
    assert {row.baseline for row in rows.values()} == {"0123abc"}


class _Database:
    """A connection: each question is a commit, and a version is published at every third."""

    info = SimpleNamespace(backend_pid=7)

    def __init__(self) -> None:
        self.num_commits = 0

    def execute(self, query: str) -> Any:
        self.num_commits += 1
        row = (self.num_commits // 3,) if query == cost.NUM_PUBLISHED else (40, self.num_commits)
        return SimpleNamespace(fetchone=lambda: row)


def test_what_the_benchmark_asks_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def used(_: object, *, but: int) -> dict[str, float]:
        return {f"all but {but}": 1.0}

    monkeypatch.setattr(cost, "POLL_S", 0.0)
    monkeypatch.setattr(cost, "_cpu_by_kind", used)
    probe, platform = Probe(_Database()), SimpleNamespace()  # type: ignore[arg-type]
    readings = [reading_at(platform, probe, number) for number in (1, 4)]  # type: ignore[arg-type]
    assert [reading.num_commits for reading in readings] == [0, 0]
    assert readings[0].cpu_s == {"all but 7": 1.0}
