"""The benchmark harness on invented benchmarks: its JSON, its table, its order, and what it
refuses."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.measuring import Sample, interleaved
from tests.benchmarks.report import Bound, Goal, Measured, Quantity, Row, TooFewRepeats, table
from tests.benchmarks.soak import soak

FAST, SLOW = Measured([30, 10, 20]), Measured([5, 4, 6])


def row(goal: Goal | None = None) -> Row:
    return Row("rate", "turns/s", FAST, "a bare proxy", SLOW, goal, "Turns that were answered.")


async def two_rows() -> Sequence[Row]:
    return [row(Goal(3, of=Quantity.RATIO)), row(Goal(25))]


def test_a_benchmark_prints_its_table_and_writes_its_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fake"], benchmarks={"fake": two_rows}, results=tmp_path / "bench") == 0

    report = json.loads((tmp_path / "bench" / "fake.json").read_bytes())
    assert report["name"] == "fake"
    assert report["machine"]["num_cores"] >= 1
    assert report["rows"][0] == {
        "metric": "rate",
        "value": 20,
        "spread": [10, 30],
        "unit": "turns/s",
        "baseline": "a bare proxy",
        "baseline_value": 5,
        "baseline_spread": [4, 6],
        "ratio": 4,
        "goal": "ratio ≥ 3",
        "met": True,
        "meaning": "Turns that were answered.",
    }
    assert report["rows"][1]["met"] is False
    printed = capsys.readouterr().out
    assert table([row(Goal(3, of=Quantity.RATIO)), row(Goal(25))]) in printed
    assert "* rate (and 1 more): Turns that were answered.\n" in printed


@pytest.mark.parametrize("arguments", [[], ["gatewey"]])
def test_a_missing_or_unknown_name_is_answered_with_the_list_of_names(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "bench"
    assert main(arguments, benchmarks={"second": two_rows, "first": two_rows}, results=results) == 2

    assert "NAME is one of: first second\n" in capsys.readouterr().err
    assert not results.exists()


def test_the_table_shows_spread_and_a_goal_that_is_not_met() -> None:
    header, rule, met, missed, open_ended = table(
        [row(Goal(6, Bound.AT_MOST, Quantity.RATIO)), row(Goal(1e6)), row()]
    ).splitlines()

    assert len({len(line) for line in (header, rule, met, missed, open_ended)}) == 1
    assert "| 10 to 30 |" in met
    assert met.replace(" ", "").endswith("|4|ratio≤6|yes|")
    assert missed.replace(" ", "").endswith("|4|≥1,000,000|notmet|")
    assert open_ended.replace(" ", "").endswith("|4|-|-|")


def test_a_row_with_two_repeats_is_refused() -> None:
    with pytest.raises(TooFewRepeats, match="at least 3 repeats, got 2"):
        Measured([1, 2])
    assert Measured([1, 2], min_repeats=2).spread == (1, 2)


async def test_sides_are_interleaved_and_the_first_round_does_not_count() -> None:
    order: list[str] = []

    async def measure(name: str) -> Sample:
        order.append(name)
        return {"place": len(order)}

    samples = await interleaved({"a": lambda: measure("a"), "b": lambda: measure("b")}, num_repeats=3)

    assert order == ["a", "b", "a", "b", "b", "a", "a", "b"]
    assert samples["b"]["place"].values == [4, 5, 8]


def test_a_soak_ends_with_the_status_of_the_round_that_failed(tmp_path: Path) -> None:
    rounds = tmp_path / "rounds"
    program = f"import sys; f = open({str(rounds)!r}, 'a+'); f.write('x'); f.seek(0); sys.exit(3 * (f.read() == 'xx'))"

    assert soak((sys.executable, "-c", program), duration_s=60) == 3
    assert rounds.read_text() == "xx"


def test_a_soak_without_time_runs_one_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert soak((sys.executable, "-c", ""), duration_s=0) == 0

    assert "round 1 passed" in capsys.readouterr().out
