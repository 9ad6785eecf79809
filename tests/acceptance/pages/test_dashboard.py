"""A visitor submits a job in the browser, watches its reward, retags a machine during the job,
pauses, resumes and cancels."""

import re
import tarfile
import time
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, expect

from seamlessflow.client import Client
from tests.acceptance.browser import Line, accessibility_faults, web_url
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.platform_process import PlatformProcess, eventually

UPDATE_TIMEOUT_MS = 60_000
CUT_S = 6
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PRODUCTIVE = {"serving", "training", "running_agents"}
LEDGER_TIMEOUT_S = 45.0

pytestmark = pytest.mark.browser


def version_shown(page: Page) -> int:
    text = page.get_by_test_id("version").inner_text()
    return int(text.replace(",", "")) if text[0].isdigit() else 0


def wait_for_version(page: Page, version: int) -> None:
    eventually(
        lambda: version_shown(page) >= version,
        timeout_s=UPDATE_TIMEOUT_MS / 1000,
        what=f"version {version} on the page",
    )


def field(page: Page, name: str) -> Locator:
    return page.locator(f"[data-field='{name}']")


def submit_by_form(page: Page, model_root: Path, *, name: str, num_updates: int) -> str:
    """Fill in the form, send it and return the job's id."""
    page.get_by_role("link", name="New job").click()
    field(page, "name").get_by_role("textbox").fill(name)
    field(page, "model.source").get_by_role("textbox").fill(str(model_root / "calculator"))
    field(page, "model.max_model_len").get_by_role("textbox").fill("256")
    field(page, "environment.tasks").get_by_role("textbox").fill(str(model_root / "tasks.jsonl"))
    field(page, "environment.max_turns").get_by_role("textbox").fill("3")
    for section, values in {
        "Rollout": {"rollout.group_size": "4", "rollout.groups_per_batch": "4", "rollout.max_tokens_per_turn": "32"},
        "Train": {"train.num_updates": str(num_updates), "train.learning_rate": "0.0003"},
    }.items():  # fmt: skip
        page.locator("summary", has=page.get_by_role("heading", name=section)).click()
        for path, value in values.items():
            field(page, path).get_by_role("textbox").fill(value)
    expect(page.get_by_test_id("yaml")).to_contain_text(f"num_updates: {num_updates}")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/jobs/job_"))
    return page.url.rpartition("/")[2]


def retag(page: Page, machine: str, role: str, *, on: bool, expected: str) -> None:
    page.get_by_role("button", name=f"Edit {machine}").click()
    page.get_by_role("checkbox", name=role).set_checked(on)
    expect(page.get_by_test_id("preview")).to_contain_text(expected)
    page.get_by_role("textbox", name="Reason").fill("roles swapped in mid-run")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_test_id("machines").locator("tr", has_text=machine)).to_contain_text(
        "roles swapped in mid-run"
    )


def confirm(page: Page, verb: str) -> None:
    page.get_by_role("button", name=verb, exact=True).click()
    page.get_by_role("button", name=f"{verb} the job").click()
    expect(page.get_by_role("dialog")).to_be_hidden()


def pick_job(page: Page, label: str, *, search: str, job_id: str) -> None:
    """Type part of a name and choose the job that the platform suggests."""
    page.get_by_label(label).press_sequentially(search)
    offered = page.locator(f"option[label='{job_id}']")
    expect(offered).to_be_attached()
    page.get_by_label(label).fill(offered.get_attribute("value") or "")


def test_a_job_is_submitted_watched_retagged_paused_resumed_and_cancelled(
    page: Page, platform: PlatformProcess, model_root: Path, complaints: list[str]
) -> None:
    page.evaluate("window.openedOnce = true")
    job_id = submit_by_form(page, model_root, name="by form", num_updates=5000)
    wait_for_version(page, 2)
    expect(page.get_by_test_id("reward")).to_have_text(re.compile(r"^−?\d\.\d{3}$"))
    expect(page.get_by_role("img", name=re.compile(r"^Reward: mean over groups from"))).to_be_visible()

    page.get_by_role("link", name="Machines").click()
    retag(page, "beta", "train", on=True, expected="beta")
    retag(page, "alpha", "train", on=False, expected="alpha")
    expect(page.get_by_test_id("lane-beta")).to_contain_text("training", timeout=UPDATE_TIMEOUT_MS)
    page.go_back()
    before = version_shown(page)
    wait_for_version(page, before + 2)

    confirm(page, "Pause")
    expect(page.get_by_test_id("job-state")).to_have_text("paused", timeout=30_000)
    expect(page.get_by_test_id("waiting")).to_contain_text("Paused by")
    paused_at = version_shown(page)
    confirm(page, "Resume")
    wait_for_version(page, paused_at + 1)

    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    with platform.client() as client:
        assert client.job_get(job_id)["desired"] == "run"
    confirm(page, "Cancel")
    expect(page.get_by_test_id("job-state")).to_have_text("cancelled", timeout=30_000)
    page.get_by_role("link", name="Events").click()
    expect(page.get_by_test_id("events").locator("tr", has_text="agent on").first).to_be_visible()
    page.get_by_role("group", name="About").get_by_text("job", exact=True).click()
    expect(page.get_by_test_id("events").locator("tr", has_text="pause requested")).to_be_visible()
    assert page.evaluate("window.openedOnce"), "the page was loaded again"

    page.get_by_role("link", name="Machines").click()
    retag(page, "beta", "train", on=False, expected="Nothing")
    retag(page, "alpha", "train", on=True, expected="Nothing")
    assert complaints == []


def figures_are_those_of_the_rows(page: Page, client: Client, job_id: str) -> None:
    """Check the overview's reward, speed and productive share against what REST returns for the
    same job."""
    groups = client.job_part(job_id, "groups", state="batched")["results"]
    newest = max(group["batch_number"] for group in groups)
    rewards = [group["reward_mean"] for group in groups if group["batch_number"] == newest]
    mean = sum(rewards) / len(
        rewards
    )  # halves of the last digit: the browser rounds 0.0625 up, Python to even
    expect(page.get_by_test_id("reward")).to_have_text(re.compile(f"^({mean:.3f}|{mean + 1e-9:.3f})$"))

    versions = client.job_part(job_id, "versions")["results"]
    published = {row["version"]: datetime.fromisoformat(row["published_at"]) for row in versions}
    tokens = client.job_part(job_id, "metrics", names="train/num_trained_tokens")["metrics"]
    column = tokens["train/num_trained_tokens"]
    trained = sum(value for step, value in zip(column["step"], column["value"], strict=True) if step > 1)
    seconds = (published[newest] - published[1]).total_seconds()
    card = page.locator(".chart-card", has=page.get_by_role("heading", name="Trained tokens per second"))
    shown = float(card.locator(".series-value").inner_text().replace(",", ""))
    assert shown == pytest.approx(trained / seconds, rel=0.02)

    # The page asks for the ledger every ten seconds, until the job's last intervals have been reported.
    deadline_s = time.monotonic() + LEDGER_TIMEOUT_S
    while abs(productive_percent_shown(page) - productive_percent(client, job_id)) > 1:
        assert time.monotonic() < deadline_s, "the productive share on the page is not that of the rows"
        page.wait_for_timeout(1000)


def productive_percent_shown(page: Page) -> int:
    said = re.search(r"productive (\d+)%", page.get_by_test_id("productive").inner_text())
    assert said is not None
    return int(said[1])


def productive_percent(client: Client, job_id: str) -> float:
    machines = client.job_part(job_id, "ledger")["machines"]
    computing = [machine for machine in machines if machine["is_computing"]]
    totals = [total for machine in computing for total in machine["totals"]]
    working = sum(total["duration_s"] for total in totals if total["state"] in PRODUCTIVE)
    return float(100 * working / sum(total["duration_s"] for total in totals))


def test_the_page_of_a_finished_job_shows_everything(
    page: Page, platform: PlatformProcess, model_root: Path, complaints: list[str]
) -> None:
    with platform.client() as client:
        job_id = client.job_submit(calculator_spec(model_root, num_updates=4) | {"name": "short"})["id"]

    # The job appears in the list by itself.
    page.locator(f"a[href='/jobs/{job_id}']").click()
    expect(page.get_by_test_id("job-state")).to_have_text("completed", timeout=UPDATE_TIMEOUT_MS)
    expect(page.get_by_test_id("updates")).to_have_text("4")
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_hidden()
    expect(page.get_by_role("heading", name="Staleness")).to_be_visible()
    with platform.client() as client:
        figures_are_those_of_the_rows(page, client, job_id)
    page.get_by_role("link", name="Events").click()
    expect(page.get_by_role("cell", name=re.compile("running → completed"))).to_be_visible()
    page.get_by_role("link", name="Phases").click()
    with platform.client() as client:
        num_phases = client.job_part(job_id, "phases")["count"]
    expect(page.get_by_test_id("num-phases")).to_have_text(f"{num_phases} phases in total")
    page.get_by_role("link", name=re.compile("Log of the train phase")).first.click()
    expect(page.get_by_test_id("log")).to_contain_text("reward/mean")
    page.get_by_role("link", name=re.compile("All phases")).click()
    for number in range(1, 5):
        expect(page.get_by_test_id("log")).to_contain_text(f"batch {number}: ")
    page.get_by_role("link", name="Spec").click()
    expect(page.get_by_test_id("spec")).to_contain_text("num_updates: 4")
    page.get_by_role("link", name="Groups").click()
    expect(page.get_by_test_id("groups").locator("tr", has_text="batched").first).to_be_visible()

    with platform.client() as client:
        group = client.job_part(job_id, "groups", state="batched")["results"][0]
    session = page.request.get(f"{web_url(platform)}/api/v1/groups/{group['id']}").json()["sessions"][0]
    page.goto(f"{web_url(platform)}/sessions/{session['id']}")
    expect(page.get_by_test_id("turns")).to_contain_text("What is")
    expect(page.locator(".token").first).to_have_attribute("title", re.compile(r"version \d+"))
    assert complaints == []


def test_one_click_starts_a_spec_that_trains_on_the_sessions_of_another_job(
    page: Page, platform: PlatformProcess, model_root: Path, complaints: list[str]
) -> None:
    with platform.client() as client:
        spec = calculator_spec(model_root, num_updates=4) | {"name": "recorded"}
        source = client.job_wait(client.job_submit(spec)["id"])
    page.goto(f"{web_url(platform)}/jobs/{source['id']}")
    page.get_by_role("link", name="Train on its sessions").click()
    expect(field(page, "data.jobs").get_by_role("textbox")).to_have_value(source["id"])
    jobs = field(page, "data.jobs")
    jobs.get_by_role("textbox").fill("")
    pick_job(page, "Add a job", search="recor", job_id=source["id"])
    expect(jobs.get_by_role("textbox")).to_have_value(source["id"])
    field(page, "data.min_reward").get_by_role("textbox").fill("-100")
    field(page, "data.shuffle").get_by_role("combobox").select_option("false")
    expect(page.get_by_test_id("yaml")).to_contain_text("shuffle: false")
    expect(page.get_by_role("heading", name="Environment", exact=True)).to_be_hidden()
    page.get_by_role("button", name="Submit").click()

    expect(page.get_by_test_id("job-state")).to_have_text("completed", timeout=UPDATE_TIMEOUT_MS)
    expect(page.get_by_test_id("dataset")).to_contain_text("recorded")
    imitation = page.url.split("/")[-1]
    expect(page.get_by_test_id("epoch")).to_have_text("1.00 of 1")
    expect(page.get_by_role("link", name="Train on its sessions")).to_be_hidden()
    page.get_by_role("link", name="Groups").click()
    page.get_by_test_id("no-groups").get_by_role("link", name="recorded").click()
    expect(page.get_by_test_id("groups").locator("tr", has_text="batched").first).to_be_visible()
    page.get_by_role("link", name="Compare", exact=True).click()
    pick_job(page, "Compare with", search="imitated", job_id=imitation)
    expect(page.get_by_test_id("differences").locator("tr", has_text="data.source")).to_contain_text(
        "trajectories"
    )
    expect(
        page.get_by_role("img", name=re.compile("^Loss: recorded from .*; recorded imitated from"))
    ).to_be_visible()
    assert complaints == []


def test_an_error_in_a_spec_is_shown_beside_its_field(page: Page, complaints: list[str]) -> None:
    page.get_by_role("link", name="New job").click()
    field(page, "name").get_by_role("textbox").fill("wrong")
    field(page, "model.source").get_by_role("textbox").fill("/etc")
    page.locator("summary", has=page.get_by_role("heading", name="Train")).click()
    field(page, "train.num_updates").get_by_role("textbox").fill("many")
    page.get_by_role("button", name="Submit").click()
    expect(field(page, "train.num_updates").locator(".fault")).to_contain_text("integer")
    expect(field(page, "environment.tasks").locator(".fault")).to_contain_text("is required")
    field(page, "environment.tasks").get_by_role("textbox").fill("/etc/hostname")
    field(page, "train.num_updates").get_by_role("textbox").fill("5")
    page.get_by_role("button", name="Submit").click()
    expect(field(page, "model.source").locator(".fault")).to_contain_text("/etc")
    assert [line for line in complaints if "400" not in line] == []


def test_form_and_yaml_follow_each_other(page: Page, complaints: list[str]) -> None:
    page.get_by_role("link", name="New job").click()
    editor = page.get_by_role("textbox", name="Job spec as YAML")
    editor.fill("name: typed\ntrain:\n  num_updates: 7\n")
    expect(field(page, "name").get_by_role("textbox")).to_have_value("typed")
    field(page, "name").get_by_role("textbox").fill("changed")
    expect(page.get_by_test_id("yaml")).to_contain_text("name: changed")
    expect(page.get_by_test_id("yaml")).to_contain_text("num_updates: 7")
    editor.fill("name: [")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    expect(field(page, "name").get_by_role("textbox")).to_have_value("changed")
    assert complaints == []


def test_a_page_that_lost_its_connection_says_so_and_becomes_current_again(
    page: Page, platform: PlatformProcess, model_root: Path, complaints: list[str]
) -> None:
    spec = calculator_spec(model_root, num_updates=500) | {"name": "waits"}
    with platform.client() as client:
        job_id = client.job_submit(spec | {"placement": {"train": ["gpu=none-has-it"]}})["id"]
    line = Line(page)
    page.goto(f"{web_url(platform)}/jobs/{job_id}")
    expect(page.get_by_test_id("waiting")).to_contain_text("gpu=none-has-it")

    line.cut()
    expect(page.get_by_test_id("line")).to_have_text("connection lost")
    with platform.client() as client:
        client.job_edit(job_id, "pause")
    expect(page.get_by_test_id("behind")).to_have_text(f"behind by {CUT_S} s", timeout=(CUT_S + 5) * 1000)
    line.mend()
    expect(page.get_by_test_id("line")).to_have_text("live", timeout=15_000)
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    confirm(page, "Cancel")
    expect(page.get_by_test_id("job-state")).to_have_text("cancelled", timeout=30_000)
    assert complaints == []


def test_a_stale_edit_is_refused_and_names_the_person_who_was_faster(
    page: Page, platform: PlatformProcess, complaints: list[str]
) -> None:
    page.get_by_role("link", name="Machines").click()
    page.get_by_role("button", name="Edit gamma").click()
    page.get_by_role("textbox", name="Add a tag").fill("zone=a")
    page.get_by_role("textbox", name="Reason").fill("labels")
    with platform.client() as client:
        gamma = next(machine for machine in client.machine_list() if machine["name"] == "gamma")
        edit = {"tags": ["agent", "zone=b"]}
        client.machine_edit(gamma["id"], changes=edit, reason="faster", generation=gamma["generation"])
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("alert")).to_contain_text("Someone else edited this machine")
    page.get_by_role("button", name="Load the current settings").click()
    expect(page.get_by_role("dialog")).to_contain_text("zone=b")
    page.get_by_role("button", name="Remove zone=b").click()
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert [line for line in complaints if "412" not in line] == []


def test_a_version_is_exported_from_the_page(
    page: Page, platform: PlatformProcess, model_root: Path, tmp_path: Path
) -> None:
    with platform.client() as client:
        job = next(client.job_list(), None) or client.job_submit(calculator_spec(model_root, num_updates=2))
    page.goto(f"{web_url(platform)}/jobs/{job['id']}/versions?offset=0")
    with page.expect_download(timeout=60_000) as started:
        page.get_by_role("link", name=re.compile("^version-")).first.click()
    started.value.save_as(tmp_path / "version.tar")
    with tarfile.open(tmp_path / "version.tar") as tar:
        names = {Path(name).name for name in tar.getnames()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names


def faults_in_both_themes(page: Page) -> list[str]:
    faults = []
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        faults += [f"{theme}: {fault}" for fault in accessibility_faults(page)]
    return faults


def test_no_page_has_a_serious_accessibility_fault_in_either_theme(
    page: Page, platform: PlatformProcess, model_root: Path
) -> None:
    with platform.client() as client:
        while len(jobs := list(islice(client.job_list(), 2))) < 2:
            client.job_submit(calculator_spec(model_root, num_updates=2))
        job_id, other_id = (job["id"] for job in jobs)
    tabs = (
        *("", "/groups", "/evaluations", "/versions", "/phases", "/logs", "/events", "/spec", "/compare"),
        f"/compare?with={other_id}",
    )
    for path in ("/", "/jobs/new", "/machines", *(f"/jobs/{job_id}{tab}" for tab in tabs)):
        page.goto(web_url(platform) + path)
        expect(page.get_by_test_id("line")).to_have_text("live", timeout=15_000)
        page.wait_for_load_state("networkidle")
        assert faults_in_both_themes(page) == [], path
    page.goto(web_url(platform) + "/machines")
    page.get_by_role("button", name="Edit alpha").click()
    page.get_by_role("checkbox", name="agent").check()
    expect(page.get_by_test_id("preview")).to_be_visible()
    assert faults_in_both_themes(page) == [], "the edit of a machine"
