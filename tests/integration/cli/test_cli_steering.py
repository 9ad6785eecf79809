"""`seamlessflow machines` and `jobs` against a real web process: what they change, what they print,
and their exit codes."""

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from seamlessflow.cli.errors import CliError
from seamlessflow.cli.main import cli, exit_code_of
from seamlessflow.cli.submission_keys import CI_SYSTEMS
from seamlessflow.client import ApiError, Client, JobStopped
from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.services.moves import PLATFORM, job_desire
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.judgements import machine_quarantine
from seamlessflow.control_plane.scheduling.services.leases import plan_apply
from seamlessflow.control_plane.telemetry.models import MetricPoint
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.core.lifecycle.jobs import DesiredJobState
from seamlessflow.core.scheduling.decisions import QuarantineMachine
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, model_folder, tasks_file, worker_make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def signed_in(cast: Cast, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_WEB_URL", live_server.url)
    monkeypatch.setenv("SEAMLESSFLOW_TOKEN", cast.operator.secret)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def said(*arguments: str) -> list[str]:
    result = run(*arguments)
    if result.exception is not None:
        raise result.exception
    return result.output.splitlines()


def refused(*arguments: str) -> str:
    exception = run(*arguments).exception
    assert isinstance(exception, CliError | ApiError), exception
    return str(exception)


@pytest.mark.usefixtures("signed_in")
def test_tags_are_added_removed_and_set(cast: Cast) -> None:
    for name in ("alpha", "beta"):
        worker_make(name, "rollout", "old")

    retagged = said(
        "machines", "tag", "alpha", "beta", "--add", "train,big", "--remove", "old", "--reason", "r"
    )
    again = said("machines", "tag", "alpha", "--add", "train", "--reason", "r")
    exact = said("machines", "tag", "beta", "--set", "agent", "--reason", "s")

    assert retagged == [
        "alpha: {big, rollout, train} (generation 2)",
        "beta: {big, rollout, train} (generation 2)",
    ]
    assert again == ["alpha: {big, rollout, train} (unchanged)"]
    assert exact == ["beta: {agent} (generation 3)"]
    assert "user:olga" in said("machines", "events", "beta")[0]


@pytest.mark.usefixtures("signed_in")
def test_a_dry_run_of_the_command_line_changes_nothing(cast: Cast) -> None:
    worker_make("alpha", "rollout").heartbeat()

    lines = said("machines", "tag", "alpha", "--set", "train", "--dry-run")
    drain = said("machines", "drain", "alpha", "--dry-run")

    assert lines[0] == "alpha (generation 1): {rollout} → {train}"
    assert drain[0] == "alpha (generation 1): {rollout} → {rollout}, draining"
    assert Machine.objects.get().generation == 1


@pytest.mark.usefixtures("signed_in")
def test_drain_cordons_and_uncordon_undoes_both(cast: Cast) -> None:
    worker_make("alpha", "rollout").heartbeat()

    said("machines", "drain", "alpha", "--reason", "disk")
    listed = said("machines", "list")
    said("machines", "uncordon", "alpha", "--reason", "new disk")

    assert listed[0].split()[1] == "draining"
    machine = Machine.objects.get()
    assert (machine.is_draining, machine.is_cordoned, machine.generation) == (False, False, 3)


@pytest.mark.usefixtures("signed_in")
def test_a_machine_in_quarantine_is_shown_and_released(cast: Cast) -> None:
    machine = worker_make("alpha", "rollout").machine
    decision = QuarantineMachine(
        machine_id=machine.id, machine="alpha", reason="it fails", num=1, backoff_s=30.0, fence=1
    )
    assert machine_quarantine(decision, author="scheduler")

    listed = said("machines", "list")
    assert any("in quarantine until" in line and line.endswith("it fails") for line in listed)
    assert said("machines", "release", "alpha", "--reason", "a new card") == ["alpha: released"]
    assert "in no quarantine" in refused("machines", "release", "alpha", "--reason", "again")
    first, second, *_ = said("machines", "events", "alpha")
    assert first.endswith("released  (a new card)")
    assert second.endswith("quarantined  (it fails)")


@pytest.mark.usefixtures("signed_in")
def test_a_machine_that_never_connected_is_distinguished_from_a_lost_one(cast: Cast) -> None:
    worker_make("alpha", "rollout").heartbeat()
    worker_make("beta", "rollout")
    MachineHeartbeat.objects.update(received_at=timezone.now() - timedelta(minutes=1))

    alpha, beta = said("machines", "list")

    assert alpha.split()[:2] == ["alpha", "down"]
    assert beta.split()[:3] == ["beta", "not", "seen"]


@pytest.mark.usefixtures("signed_in")
def test_bad_usage_is_refused_with_one_sentence(cast: Cast) -> None:
    worker_make("alpha", "rollout")

    assert "--reason" in refused("machines", "cordon", "alpha")
    assert "--set, or --add" in refused("machines", "tag", "alpha", "--reason", "r")
    assert "both" in refused("machines", "tag", "alpha", "--add", "x", "--remove", "x", "--reason", "r")
    assert "nobody" in refused("machines", "cordon", "nobody", "--reason", "r")
    assert "generation 1, not 7" in refused(
        "machines", "cordon", "alpha", "--reason", "r", "--generation", "7"
    )
    assert "must match" in refused("machines", "tag", "alpha", "--add", "Bad Tag", "--reason", "r")


@pytest.mark.usefixtures("signed_in")
def test_steering_a_job_prints_the_request_and_keeps_the_reason(cast: Cast) -> None:
    job = cast.job()
    shown = show_id(IdKind.JOB, job.id)

    paused = said("jobs", "pause", shown, "--reason", "lunch")
    plan_apply(decide(snapshot_load()))
    at_rest = said("jobs", "pause", shown, "--wait")
    said("jobs", "resume", shown, "--reason", "back")
    said("jobs", "cancel", shown, "--reason", "wrong model")
    plan_apply(decide(snapshot_load()))
    ended = said("jobs", "cancel", shown, "--wait")

    assert paused == [f"{shown} queued, asked to pause"]
    assert at_rest == [f"{shown} paused, asked to pause"]
    assert ended == [f"{shown} cancelled, asked to cancel"]
    assert "cannot be asked" in refused("jobs", "resume", shown) or "only a job" in refused(
        "jobs", "resume", shown
    )
    assert Job.objects.get().state == "cancelled"
    requests = Event.objects.filter(kind="job.desired").order_by("id").values_list("reason", "author")
    assert list(requests) == [("lunch", "user:olga"), ("back", "user:olga"), ("wrong model", "user:olga")]


@pytest.mark.usefixtures("signed_in")
@pytest.mark.parametrize("identifier", ["", "../machines", "x/y", "job_ü", "a?b"])
def test_an_identifier_that_would_lead_to_another_path_names_no_job(identifier: str) -> None:
    for verb in ("show", "wait", "cancel", "audit"):
        assert refused("jobs", verb, identifier).startswith(
            f"{identifier!r} is not an identifier of the form job_…"
        )


@pytest.mark.usefixtures("signed_in")
def test_an_empty_list_does_not_hide_that_jobs_in_other_states_exist(cast: Cast) -> None:
    cast.job()

    assert said("jobs", "list", "--state", "completed") == ["no job is completed"]
    assert isinstance(run("jobs", "list", "--limit", "0").exception, click.BadParameter)


@pytest.mark.parametrize("lonely", ["SEAMLESSFLOW_WEB_URL", "SEAMLESSFLOW_TOKEN"])
def test_an_address_without_a_token_or_the_reverse_is_refused(
    lonely: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SEAMLESSFLOW_WEB_URL", "SEAMLESSFLOW_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(lonely, "http://127.0.0.1:1")

    assert refused("jobs", "list").startswith(f"{lonely} is set, but ")


def test_an_impossible_token_or_address_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_WEB_URL", "http://[::1")
    monkeypatch.setenv("SEAMLESSFLOW_TOKEN", "sf_x")
    assert "'http://[::1' is not an address" in refused("jobs", "list")
    monkeypatch.setenv("SEAMLESSFLOW_TOKEN", "schlüssel")
    assert "API token" in refused("jobs", "list")


def test_an_invalid_job_id_is_named_before_any_request() -> None:
    said = refused("jobs", "show", "my-job")
    assert "'my-job' is not an identifier of the form job_…; `seamlessflow jobs list` shows them" in said


@pytest.mark.usefixtures("signed_in")
def test_a_model_made_of_links_is_uploaded_as_files(cast: Cast, tmp_path: Path) -> None:
    source = model_folder(tmp_path / "blobs")
    (tmp_path / "snapshot").mkdir()
    for file in source.iterdir():
        (tmp_path / "snapshot" / file.name).symlink_to(Path("..") / "blobs" / file.name)
    tasks_file(tmp_path / "tasks.jsonl")
    spec = cast.spec(model={"source": "snapshot", "max_model_len": 64})
    spec["environment"]["tasks"] = "tasks.jsonl"
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))

    said("submit", str(tmp_path / "job.yaml"))

    assert Job.objects.count() == 1
    assert [artifact.name for artifact in Artifact.objects.order_by("id")] == ["snapshot.tar", "tasks.jsonl"]


@pytest.mark.usefixtures("signed_in")
def test_files_that_the_project_already_has_are_not_sent_again(cast: Cast, tmp_path: Path) -> None:
    source = model_folder(tmp_path / "own")
    tasks_file(tmp_path / "tasks.jsonl")
    spec = cast.spec(model={"source": "own", "max_model_len": 64})
    spec["environment"]["tasks"] = "tasks.jsonl"
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))
    said("submit", str(tmp_path / "job.yaml"))

    os.utime(source / "config.json", (1, 1))
    said("submit", str(tmp_path / "job.yaml"))
    assert Artifact.objects.count() == 2
    first, second = Job.objects.order_by("id")
    assert first.spec["model"] == second.spec["model"]

    (source / "README.md").write_text("changed")
    said("submit", str(tmp_path / "job.yaml"))
    assert Artifact.objects.count() == 3


@pytest.mark.usefixtures("signed_in")
def test_a_path_that_does_not_exist_is_named_before_anything_is_uploaded(cast: Cast, tmp_path: Path) -> None:
    tasks_file(tmp_path / "tasks.jsonl")
    spec = cast.spec(model={"source": "absent", "max_model_len": 64})
    spec["environment"]["tasks"] = "tasks.jsonl"
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))

    assert refused("submit", str(tmp_path / "job.yaml")) == f"model.source: {tmp_path}/absent does not exist"
    assert not Artifact.objects.exists()


@pytest.mark.usefixtures("signed_in")
def test_a_program_beside_the_spec_is_named_by_its_absolute_path(cast: Cast, tmp_path: Path) -> None:
    spec = cast.spec()
    spec["environment"] |= {"name": "command", "command": ["python3", "./agent.py"]}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))

    assert "'./agent.py' is a relative path" in refused("submit", str(tmp_path / "job.yaml"))
    (tmp_path / "agent.py").write_text("")
    assert str(tmp_path / "agent.py") in said("submit", str(tmp_path / "job.yaml"))[0]
    assert Job.objects.get().spec["environment"]["command"] == ["python3", str(tmp_path / "agent.py")]


@pytest.mark.usefixtures("signed_in")
def test_a_machine_is_registered_and_its_token_printed_alone(cast: Cast) -> None:
    (token,) = said("machines", "register", "gpu-07", "--tags", "rollout,train")

    assert token.startswith("sfm_")
    assert sorted(Machine.objects.get(name="gpu-07").tags) == ["rollout", "train"]


def test_an_error_in_a_spec_says_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: x\nmodel: [\n")

    assert "line 3, column 1" in refused("submit", str(tmp_path / "job.yaml"))


@pytest.mark.usefixtures("signed_in")
def test_scripts_get_json_and_nothing_else(cast: Cast, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(cast.spec()))

    submitted = json.loads(run("submit", str(tmp_path / "job.yaml"), "--json").stdout)
    (listed,) = json.loads(run("jobs", "list", "--json").stdout)
    shown = json.loads(run("jobs", "show", submitted["id"], "--json").stdout)

    assert submitted["id"] == listed["id"] == shown["id"]
    assert shown["spec"]["name"] == "calculator"


@pytest.mark.usefixtures("signed_in")
def test_waiting_ends_at_its_timeout_and_the_job_continues(cast: Cast) -> None:
    job = cast.job()

    error = run("jobs", "wait", show_id(IdKind.JOB, job.id), "--timeout", "0.01").exception

    assert isinstance(error, CliError)
    assert error.exit_code == 4
    assert "still queued" in str(error)
    assert Job.objects.get().desired == "run"


@pytest.mark.usefixtures("signed_in")
def test_a_cancelled_job_is_printed_in_full_before_the_wait_fails(cast: Cast) -> None:
    shown = show_id(IdKind.JOB, cast.job().id)
    said("jobs", "cancel", shown)
    plan_apply(decide(snapshot_load()))

    result = run("jobs", "wait", shown, "--json")

    assert isinstance(result.exception, JobStopped)
    assert json.loads(result.stdout)["state"] == "cancelled"


@pytest.mark.usefixtures("signed_in")
def test_waiting_ends_when_the_platform_pauses_the_job_and_says_what_to_do(cast: Cast) -> None:
    job = cast.job()
    shown = show_id(IdKind.JOB, job.id)
    job_desire(job_id=job.id, desired=DesiredJobState.PAUSE, reason="its agents crash", author=PLATFORM)
    plan_apply(decide(snapshot_load()))

    result = run("jobs", "wait", shown, "--json", "--timeout", "20")

    assert isinstance(result.exception, JobStopped)
    assert exit_code_of(result.exception) == 5
    assert "its agents crash" in str(result.exception)
    assert f"seamlessflow jobs resume {shown}" in str(result.exception)
    printed = json.loads(result.stdout)
    assert (printed["id"], printed["state"], printed["paused_by"]) == (shown, "paused", "platform")


@pytest.mark.usefixtures("signed_in")
def test_waiting_goes_on_while_a_person_has_paused_the_job(cast: Cast) -> None:
    shown = show_id(IdKind.JOB, cast.job().id)
    said("jobs", "pause", shown, "--reason", "lunch")
    plan_apply(decide(snapshot_load()))

    error = run("jobs", "wait", shown, "--timeout", "0.01").exception

    assert isinstance(error, CliError)
    assert error.exit_code == 4


@pytest.mark.usefixtures("signed_in")
@pytest.mark.parametrize("how", ["time out", "interrupt"])
def test_a_script_gets_the_job_however_the_wait_ends(
    cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(cast.spec()))
    if how == "interrupt":
        monkeypatch.setattr(Client, "job_watch", interrupted)
    limit = ("--timeout", "0.01") if how == "time out" else ()

    result = run("submit", str(tmp_path / "job.yaml"), "--wait", "--json", *limit)

    assert result.exception is not None
    assert json.loads(result.stdout)["id"] == show_id(IdKind.JOB, Job.objects.get().id)


def interrupted(client: Client, job_id: str) -> Iterator[Any]:
    yield client.job_get(job_id)
    raise KeyboardInterrupt


@pytest.mark.usefixtures("signed_in")
def test_a_repeated_run_of_ci_finds_the_job_that_it_created(
    cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(cast.spec()))

    def submitted(*options: str) -> str:
        return str(json.loads(run("submit", str(file), "--json", *options).stdout)["id"])

    for name in {name for names in CI_SYSTEMS.values() for name in names}:
        monkeypatch.delenv(name, raising=False)
    assert submitted() != submitted(), "outside CI, each call creates a job"
    for name, value in {"GITHUB_REPOSITORY": "a/b", "GITHUB_RUN_ID": "7", "GITHUB_JOB": "train"}.items():
        monkeypatch.setenv(name, value)
    first = submitted()
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    assert submitted() == first
    monkeypatch.setenv("GITHUB_RUN_ID", "8")
    assert submitted() != first
    assert submitted("--key", "mine") == submitted("--key", "mine")


@pytest.mark.usefixtures("signed_in")
def test_metrics_are_printed_and_an_unknown_one_is_named(cast: Cast) -> None:
    job = cast.job()
    for step in (1, 2):
        MetricPoint.objects.create(
            project=job.project, job=job, name="reward/mean", step=step, value=step / 2
        )
    shown = show_id(IdKind.JOB, job.id)

    assert said("jobs", "metrics", shown)[0].split() == ["reward/mean", "step", "2", "1"]
    assert json.loads(run("jobs", "metrics", shown, "--name", "reward/mean", "--json").stdout) == {
        "reward/mean": {"step": [1, 2], "value": [0.5, 1.0]}
    }
    assert "no metric train/nothing" in refused("jobs", "metrics", shown, "--name", "train/nothing")


@pytest.mark.usefixtures("signed_in")
def test_the_queue_and_a_priority_are_shown_and_changed(cast: Cast) -> None:
    assert said("queue") == ["no job waits for a machine"]
    worker_make("alpha", "train").heartbeat()
    job_id = show_id(IdKind.JOB, cast.job(environment={"name": "external"}).id)

    lines = said("queue")

    assert lines[0].startswith(f"{job_id}  place 1   priority 0    waits 0 s  calculator")
    assert lines[2] == "  It lacks 1 machine to roll out, with the tag rollout: no usable machine has them."
    assert lines[3].startswith("  cheapest: Give alpha the tag rollout")
    assert said("jobs", "priority", job_id, "-7", "--reason", "later") == [f"{job_id} has the priority -7"]
    assert json.loads("\n".join(said("queue", "--json", "--project", "default")))[0]["priority"] == -7
    assert "there is no project elsewhere" in refused("queue", "--project", "elsewhere")
    assert Event.objects.get(kind="job.priority").reason == "later"


@pytest.mark.usefixtures("signed_in")
def test_shares_and_pools_are_listed_and_edited(cast: Cast) -> None:
    worker_make("alpha", "train")
    assert said("machines", "pool", "alpha", "--to", "lab", "--dry-run")[0] == (
        "alpha (generation 1): {train} → {train} in the pool lab"
    )
    assert said("machines", "pool", "alpha", "--to", "lab", "--reason", "r") == [
        "alpha: {train} in the pool lab (generation 2)"
    ]
    assert "'Lab' is not accepted" in refused("machines", "pool", "alpha", "--to", "Lab", "--reason", "r")
    assert said("machines", "cost", "alpha", "--to", "2.5", "--reason", "r") == [
        "alpha: {train} in the pool lab of cost 2.5 (generation 3)"
    ]
    assert "0 is not accepted; accepted: 0.01 to 1000" in refused(
        "machines", "cost", "alpha", "--to", "0", "--reason", "r"
    )
    assert "cost 1.0 → 2.5" in said("machines", "events", "alpha")[0]
    assert "pool default → lab" in said("machines", "events", "alpha")[1]
    assert said("shares", "set", "elsewhere", "--weight", "2", "--quota", "3", "--reason", "r")[0].startswith(
        "elsewhere            weight 2      quota 3      entitled to 0.0    holds 0"
    )
    said("shares", "set", "elsewhere", "--quota", "none", "--reason", "r")
    assert [line.split()[0] for line in said("shares", "list")] == ["default", "elsewhere"]
    assert json.loads("\n".join(said("shares", "list", "--json")))[1]["machine_quota"] is None
    assert "--weight" in refused("shares", "set", "elsewhere", "--reason", "r")
    assert "from 1 on, or none" in refused("shares", "set", "elsewhere", "--quota", "0", "--reason", "r")

    assert said("pools", "grant", "lab", "default") == ["default may use the pool lab"]
    assert said("pools", "list") == [
        "default                 0 machines  open to every project",
        "lab                     1 machine   open to default",
    ]
    said("pools", "revoke", "lab", "default", "--reason", "r")
    assert said("pools", "list")[1].endswith("open to no project")
