"""Held-out tasks are measured through the real planes while a job trains and gateway and web
process are killed."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from seamlessflow.client import Client
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds
from tests.acceptance.platform_process import PlatformProcess, eventually, kill_hard

NUM_UPDATES, NUM_HELD_OUT, NUM_SAMPLES = 8, 6, 4


def evaluated_spec(model_root: Path) -> dict[str, Any]:
    lines = (model_root / "tasks.jsonl").read_text().splitlines(keepends=True)
    held_out = model_root / "held_out.jsonl"
    held_out.write_text("".join(lines[-NUM_HELD_OUT:]))
    evaluation = {
        "tasks": str(held_out),
        "every_versions": 3,
        "samples_per_task": NUM_SAMPLES,
        "k": [1, 2, 4],
    }
    return calculator_spec(model_root, num_updates=NUM_UPDATES) | {"evaluation": evaluation}


def evaluations(client: Client, job_id: str) -> dict[int, dict[str, Any]]:
    return {row["version"]: row for row in client.job_part(job_id, "evaluations")["results"]}


def test_versions_are_measured_while_the_job_trains_and_planes_die(
    platform: PlatformProcess, model_root: Path
) -> None:
    victims = {1: "seamlessflow.data_plane", 4: "seamlessflow.control_plane.asgi"}  # by version reached
    with platform.client() as client:
        job = client.job_submit(evaluated_spec(model_root))
        job_id = job["id"]
        for job in client.job_watch(job_id, every_s=0.1):
            for version in [version for version in victims if version <= job["latest_version"]]:
                kill_hard(platform.find(victims.pop(version)))
        rows = evaluations(client, job_id)
        metrics = client.job_part(job_id, "metrics")["metrics"]
        summary = client.job_part(job_id, "summary")
        groups = client.job_part(job_id, "groups", evaluation=str(NUM_UPDATES))["results"]
        assert_audit_holds(client, job_id)

    assert (job["state"], victims) == ("completed", {})
    assert NUM_UPDATES in rows, "the last version is always measured"
    assert len(rows) >= 2, "and so is an early one"
    assert len(rows) <= 2 + NUM_UPDATES // 3
    for version, row in rows.items():
        assert (row["state"], row["num_tasks_done"], row["num_rewarded"]) == (
            "finished", NUM_HELD_OUT, NUM_HELD_OUT * NUM_SAMPLES,
        )  # fmt: skip
        assert version == row["min_version"] <= row["max_version"] <= NUM_UPDATES
        assert 0 <= row["pass_at_1"] <= row["pass_at_k"]["2"] <= row["pass_at_k"]["4"] <= 1
    measured = metrics["eval/pass_at_4"]
    assert measured["step"] == sorted(rows)
    assert measured["value"] == [rows[version]["pass_at_k"]["4"] for version in sorted(rows)]
    best = max(rows.values(), key=lambda row: (row["pass_at_1"], row["reward_mean"], -row["version"]))
    assert job["best_version"] == best["version"]
    assert {(group["state"], group["batch_number"]) for group in groups} == {("evaluated", None)}
    assert summary["num_evaluation_tokens"] >= sum(row["num_sampled_tokens"] for row in rows.values()) > 0
    assert summary["num_trained_tokens"] <= summary["num_sampled_tokens"] - summary["num_evaluation_tokens"]


@pytest.mark.browser
def test_the_page_of_a_job_shows_its_evaluations(
    page: Page, platform: PlatformProcess, model_root: Path, complaints: list[str]
) -> None:
    with platform.client() as client:
        spec = evaluated_spec(model_root) | {"name": "measured"}
        spec["train"] = spec["train"] | {"num_updates": 2}
        job_id = client.job_submit(spec)["id"]
        page.locator(f"a[href='/jobs/{job_id}']").click()
        expect(page.get_by_role("heading", name="Held-out tasks")).to_be_visible()
        eventually(
            lambda: client.job_get(job_id)["state"] == "completed", timeout_s=180, what="the job completes"
        )
        best = client.job_get(job_id)["best_version"]

    expect(page.get_by_test_id("best-version")).to_contain_text(f"best on held-out tasks: {best}")
    page.get_by_role("link", name="Evaluations").click()
    row = page.get_by_test_id("evaluations").locator("tr", has_text="best")
    expect(row).to_contain_text(f"Version {best}")
    row.get_by_role("link").click()
    expect(page.get_by_test_id("groups").locator("tr", has_text="evaluated")).to_have_count(NUM_HELD_OUT)
    page.get_by_role("link", name="Show the training groups").click()
    expect(page.get_by_test_id("groups").locator("tr", has_text="batched").first).to_be_visible()
    assert complaints == []
