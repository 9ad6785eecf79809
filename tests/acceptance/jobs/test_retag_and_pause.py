"""People steer a running installation: they retag machines in three ways, pause a job and resume it
elsewhere, and cancel; nothing is lost.

All tests share one installation; each gives its machines back the tags that they had.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.client import ApiError, Client
from seamlessflow.core.types.ids import IdKind, parse_id
from seamlessflow_workers.weights.transports.file.receiving import weights_check
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds, wait_for_version
from tests.acceptance.platform_process import PlatformProcess, eventually, kill_hard
from tests.acceptance.steering import (
    admin_bulk_edit,
    admin_site,
    command,
    invoke,
    rest_tags_set,
    said,
)

TAGS = {"alpha": ["rollout", "train"], "beta": ["rollout"], "gamma": ["agent"]}
MANY_UPDATES = 10_000  # more than come to an end
ENDS = ("completed", "cancelled")


@pytest.fixture(autouse=True)
def tags_as_before(platform: PlatformProcess) -> Iterator[None]:
    yield
    with platform.client() as client:
        for name, tags in TAGS.items():
            machine = client.machine_get(name)
            client.machine_edit(
                machine["id"],
                changes={"tags": tags, "is_cordoned": False, "is_draining": False},
                reason="the test is over",
                generation=machine["generation"],
            )


def machine_ids(client: Client) -> dict[str, str]:
    return {m["name"]: str(parse_id(IdKind.MACHINE, m["id"])) for m in client.machine_list()}


def phases_of(client: Client, job_id: str) -> list[dict[str, Any]]:
    """Return the phases, newest first."""
    return list(client.job_part(job_id, "phases", limit=200)["results"])


def wait_until_it_trains_on(client: Client, job_id: str, name: str) -> None:
    """Wait until a version was published by `name` as the newest trainer."""

    def is_training() -> bool:
        job = client.job_get(job_id)
        assert job["state"] not in ENDS, f"{job['state']}: {job['state_reason']}"
        trains = [phase for phase in phases_of(client, job_id) if phase["role"] == "train"]
        return bool(trains) and trains[0]["machine"] == name and trains[0]["active_at"] is not None

    eventually(is_training, timeout_s=90, what=f"training on {name}")
    wait_for_version(client, job_id, client.job_get(job_id)["latest_version"] + 1)


def test_the_same_retag_by_rest_command_line_and_admin_site_loses_nothing(
    platform: PlatformProcess, model_root: Path
) -> None:
    with platform.client() as client, admin_site(platform) as browser:
        ids = machine_ids(client)
        job_id = client.job_submit(calculator_spec(model_root, num_updates=MANY_UPDATES))["id"]
        wait_for_version(client, job_id, 1)

        rest_tags_set(platform, "beta", ["rollout", "train"], reason="over REST")
        rest_tags_set(platform, "alpha", ["rollout"], reason="over REST")
        wait_until_it_trains_on(client, job_id, "beta")

        reason = ("--reason", "by command")
        said(platform, "machines", "tag", "alpha", "--add", "train", *reason)
        said(platform, "machines", "tag", "beta", "--remove", "train", *reason)
        stale = invoke(platform, "machines", "tag", "beta", "--set", "agent", *reason, "--generation", "1")
        assert isinstance(stale.exception, ApiError)
        assert stale.exception.status == 412
        wait_until_it_trains_on(client, job_id, "alpha")

        admin_bulk_edit(browser, [ids["beta"]], add="train", reason="in the admin site")
        sentences = admin_bulk_edit(browser, [ids["alpha"]], remove="train", reason="in the admin site")
        print(*sentences, sep="\n")
        assert "calculator trains on beta instead of alpha." in sentences
        wait_until_it_trains_on(client, job_id, "beta")

        toggle_quickly(client, "beta")
        hold_without_an_engine(platform, client, job_id)
        goes_on_and_is_cancelled(client, job_id)
        assert_three_edits_are_told(client, "beta")
        trained = {
            machine["name"]: sum(t["duration_s"] for t in machine["totals"] if t["state"] == "training")
            for machine in client.job_part(job_id, "ledger")["machines"]
        }
        print("seconds of training by machine:", trained)
        assert trained["alpha"] > 0
        assert trained["beta"] > 0


def goes_on_and_is_cancelled(client: Client, job_id: str) -> None:
    version = client.job_get(job_id)["latest_version"] + 2
    eventually(
        lambda: client.job_get(job_id)["latest_version"] >= version, timeout_s=120, what=f"version {version}"
    )
    client.job_edit(job_id, "cancel", reason="seen enough")
    eventually(lambda: client.job_get(job_id)["ended_at"], timeout_s=60, what="the end of the job")
    assert_audit_holds(client, job_id)


def toggle_quickly(client: Client, name: str) -> None:
    """Edit back and forth, faster than a machine can change roles: only the last edit counts."""
    for tags in (["agent"], ["rollout"], ["train"], ["rollout", "train"]) * 2:
        machine = client.machine_get(name)
        client.machine_edit(
            machine["id"], changes={"tags": tags}, reason="back and forth", generation=machine["generation"]
        )


def hold_without_an_engine(platform: PlatformProcess, client: Client, job_id: str) -> None:
    """Let no machine roll out for a while: the job says so, waits, and continues when the machines
    are back."""
    said(platform, "machines", "drain", "alpha", "beta", "--reason", "nobody rolls out")

    def waits() -> bool:
        return "no machine is free for role rollout" in client.job_get(job_id)["waiting_reason"]

    eventually(waits, timeout_s=30, what="a reason that names the missing role")
    eventually(
        lambda: not [p for p in phases_of(client, job_id) if p["role"] != "agent" and p["ended_at"] is None],
        timeout_s=60,
        what="the hand-over",
    )
    assert client.job_get(job_id)["state"] == "running"
    said(platform, "machines", "uncordon", "alpha", "beta", "--reason", "back")


def assert_three_edits_are_told(client: Client, name: str) -> None:
    ways = ("in the admin site", "by command", "over REST")
    events = client.machine_events(client.machine_get(name)["id"], limit=100)
    edits = [event for event in events if event["reason"] in ways]
    assert [event["reason"] for event in edits[:3]] == list(ways)
    assert {event["author"].partition(":")[0] for event in edits[:3]} == {"user"}


def test_a_paused_job_frees_its_machines_and_continues_on_others(
    platform: PlatformProcess, model_root: Path
) -> None:
    with platform.client() as client:
        job_id = client.job_submit(calculator_spec(model_root, num_updates=MANY_UPDATES))["id"]
        wait_for_version(client, job_id, 2)

        client.job_edit(job_id, "pause", reason="the other job first")
        kill_hard(platform.find("run_scheduler"))
        assert "paused" in said(platform, "jobs", "pause", job_id, "--wait")
        assert [machine["phase"] for machine in client.machine_list()] == [None] * 3
        version = client.job_get(job_id)["latest_version"]
        other = client.job_submit(calculator_spec(model_root, num_updates=1))["id"]
        assert client.job_wait(other)["state"] == "completed"
        assert client.job_get(job_id)["latest_version"] == version
        rest_tags_set(platform, "beta", ["rollout", "train"], reason="resume elsewhere")
        rest_tags_set(platform, "alpha", ["rollout"], reason="resume elsewhere")

        assert "running" in said(platform, "jobs", "resume", job_id, "--wait", "--reason", "go on")
        wait_for_version(client, job_id, version + 1)
        client.job_edit(job_id, "pause", reason="again, and a supervisor dies of it")
        kill_hard(platform.find("seamlessflow_workers.supervisor", "--name beta"))
        eventually(lambda: client.job_get(job_id)["state"] == "paused", timeout_s=60, what="a pause")
        client.job_edit(job_id, "resume", reason="last")

        goes_on_and_is_cancelled(client, job_id)
        trainers = {phase["machine"] for phase in phases_of(client, job_id) if phase["role"] == "train"}
        assert trainers == {"alpha", "beta"}
        requests = [
            e for e in client.job_part(job_id, "events", limit=500)["results"] if e["kind"] == "job.desired"
        ]
        assert "the other job first" in {event["reason"] for event in requests}


def test_a_cancelled_job_leaves_complete_artifacts_and_free_machines(
    platform: PlatformProcess, model_root: Path
) -> None:
    with platform.client() as client:
        job_id = client.job_submit(calculator_spec(model_root, num_updates=50))["id"]
        wait_for_version(client, job_id, 2)

        ended = command(platform, "jobs", "cancel", job_id, "--wait", "--reason", "seen enough")
        print(ended.stdout)
        assert ended.returncode == 0, ended.stderr
        job = client.job_get(job_id)
        assert (job["state"], command(platform, "jobs", "cancel", job_id).returncode) == ("cancelled", 0)
        assert command(platform, "jobs", "resume", job_id).returncode == 2
        assert [machine["phase"] for machine in client.machine_list()] == [None] * 3
        assert_audit_holds(client, job_id)

    folder = platform.home.artifacts / str(parse_id(IdKind.JOB, job_id))
    versions = {path.name: path for path in (folder / "versions").iterdir()}
    assert str(job["latest_version"]) in versions
    for name, path in versions.items():
        weights_check(path, version=int(name))
    assert not list(folder.rglob(".*")), "nothing half-made is left"
