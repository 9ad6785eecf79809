"""The demo's judgement and summary, from invented numbers."""

from typing import Any

import pytest

from seamlessflow.cli.demo_report import holding_lines, judge, sparkline, summary_lines
from seamlessflow.cli.local.layouts import LAYOUTS, MAX_JOBS
from seamlessflow_workers.supervisor.config import DEFAULT_AGENT_SLOTS

JOB: dict[str, Any] = {
    "id": "job_1",
    "state": "completed",
    "state_reason": "",
    "latest_version": 50,
    "progress": {"num_updates": 50},
}
SUMMARY: dict[str, Any] = {
    "num_groups_trained": 400,
    "reward_first_tenth": 0.2,
    "reward_last_tenth": 0.9,
    "reward_by_tenth": [0.2, 0.9],
    "num_sampled_tokens": 1000,
    "num_trained_tokens": 900,
    "num_wasted_tokens": 0,
    "num_turns": 80,
    "num_turns_handed_over": 8,
    "num_turns_continued": 4,
    "num_turns_of_several_versions": 3,
    "joins": {"num_clean": 70, "num_turns": 75, "causes": {"repeat": 1, "history": 4}},
    "max_gap_s": 0.25,
}
AUDIT = {"ok": True, "checks": [{"name": "whole", "ok": True}]}
LEDGER = {
    "machines": [
        {
            "name": "alpha",
            "totals": [
                {"state": "training", "cause": "", "share": 0.75},
                {"state": "idle", "cause": "no_batch", "share": 0.25},
            ],
        }
    ]
}


def shortfalls(*, learning_rate: float = 1e-3, is_handing_over: bool = True, **changes: Any) -> str:
    summary = SUMMARY | {name: value for name, value in changes.items() if name in SUMMARY}
    job = JOB | {name: value for name, value in changes.items() if name in JOB}
    judgement = judge(job, summary, AUDIT, learning_rate=learning_rate, is_handing_over=is_handing_over)
    assert judgement.is_success == (not judgement.shortfalls)
    return "; ".join(judgement.shortfalls)


def test_a_risen_reward_with_a_hand_over_is_a_success() -> None:
    assert shortfalls() == ""


@pytest.mark.parametrize(
    "changes,word",
    [
        ({"reward_last_tenth": 0.45}, "rose"),
        ({"reward_last_tenth": 0.7}, "0.75"),
        ({"latest_version": 49}, "49 of 50 versions"),
        ({"state": "failed", "state_reason": "no disk"}, "no disk"),
        ({"reward_first_tenth": None}, "too few groups"),
        ({"num_turns_continued": 0}, "continued"),
        ({"learning_rate": 0.0}, "without learning"),
    ],
)
def test_each_broken_promise_is_named(changes: dict[str, Any], word: str) -> None:
    assert word in shortfalls(**changes)


def test_a_flat_curve_is_what_a_learning_rate_of_zero_promises() -> None:
    assert shortfalls(learning_rate=0.0, reward_last_tenth=0.25) == ""


def test_a_run_too_short_to_learn_promises_only_its_end_and_a_clean_audit() -> None:
    few: dict[str, Any] = {
        "progress": {"num_updates": 20},
        "reward_last_tenth": 0.3,
        "num_turns_continued": 0,
    }
    assert shortfalls(latest_version=20, **few) == ""
    assert "19 of 20 versions" in shortfalls(latest_version=19, **few)


def test_a_layout_without_machines_of_two_roles_needs_no_hand_over() -> None:
    assert shortfalls(is_handing_over=False, num_turns_continued=0) == ""


def test_shares_are_listed_largest_first_with_their_causes() -> None:
    lines = list(summary_lines(JOB, SUMMARY, LEDGER, AUDIT, running_s=10.0))

    assert any("training 75.0 %, idle:no_batch 25.0 %" in line for line in lines)
    assert any("1000 sampled (100/s)" in line for line in lines)


def test_joins_are_summed_up_with_the_most_frequent_cause_first() -> None:
    lines = list(summary_lines(JOB, SUMMARY, LEDGER, AUDIT, running_s=10.0))
    uncounted = list(summary_lines(JOB, SUMMARY | {"joins": None}, LEDGER, AUDIT, running_s=10.0))

    assert (
        "joins      70 of 75 clean; 4 × earlier messages were edited, dropped or branched; "
        "1 × the same request was sent again"
    ) in lines
    assert not any(line.startswith("joins") for line in uncounted)


def test_a_sparkline_uses_the_full_range_of_bars() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == " ▄█"


def test_what_each_machine_did_for_which_job_is_listed_in_seconds() -> None:
    def ledger(**seconds: float) -> dict[str, Any]:
        idle = {"state": "idle", "cause": "no_batch", "duration_s": 99.0}
        return {
            "machines": [
                {"name": name, "totals": [{"state": "serving", "cause": "full", "duration_s": worked}, idle]}
                for name, worked in seconds.items()
            ]
        }

    lines = list(holding_lines({"first": ledger(beta=30.0, alpha=12.4), "second": ledger(beta=29.0)}))
    assert lines == [
        "alpha      worked for first 12 s, second 0 s",
        "beta       worked for first 30 s, second 29 s",
    ]


def test_one_machine_of_the_demo_has_slots_for_the_agents_of_all_its_jobs() -> None:
    for machines in LAYOUTS.values():
        assert [machine.name for machine in machines if "agent" in machine.tags] == ["gamma"]
    assert MAX_JOBS <= DEFAULT_AGENT_SLOTS
