"""Jobs over REST: submission and its refusals, visibility, desired states."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.services.moves import job_move
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import PLAIN_CONFIG, Cast, weights_file


def test_a_submitted_job_is_queued_with_version_zero_and_an_event(cast: Cast) -> None:
    response = cast.member.call("POST", "jobs", cast.spec())

    assert response.status_code == 201, response.content
    body = json.loads(response.content)
    job = Job.objects.get()
    assert body["id"] == show_id(IdKind.JOB, job.id)
    assert (body["state"], body["num_tasks"], body["progress"]["num_updates"]) == ("queued", 2, 2)
    assert body["spec"]["rollout"]["group_size"] == 8
    assert PolicyVersion.objects.get().uri == cast.model.as_uri()
    event = Event.objects.get(kind="job.state")
    assert (event.to_state, event.author, event.job_id) == ("queued", "user:mira", job.id)


def test_a_yaml_body_is_accepted(cast: Cast) -> None:
    text = f"""
name: calculator
model: {{source: {cast.model}}}
environment: {{name: calculator, tasks: {cast.tasks}}}
"""
    response = Client().post(
        "/api/v1/jobs",
        text,
        content_type="application/yaml",
        headers={"Authorization": f"Bearer {cast.owner.secret}"},
    )

    assert response.status_code == 201, response.content


def test_all_faults_of_a_spec_are_named_at_once(cast: Cast) -> None:
    (cast.model / "config.json").write_text('{"model_type": "qwen3", "max_position_embeddings": 512}')
    spec = cast.spec()
    spec["model"] |= {"max_model_len": 1_000_000}
    spec["environment"] |= {"tasks": "/nowhere/tasks.jsonl"}
    spec["evaluation"] = {"tasks": "/nowhere/held_out.jsonl"}

    response = cast.member.call("POST", "jobs", spec)

    assert response.status_code == 400, response.content
    fields = {error["field"] for error in json.loads(response.content)["errors"]}
    assert fields == {"model.max_model_len", "environment.tasks", "evaluation.tasks"}
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "section,change,field,word",
    [
        ("rollout", {"group_sise": 4}, "rollout.group_sise", "group_size"),
        ("model", {"source": "/etc"}, "model.source", "MODEL_ROOTS"),
        ("model", {"source": "hub://Qwen/Qwen3"}, "model.source", "hub cache"),
        ("model", {"source": "artifact://art_nothing"}, "model.source", "art_"),
        ("model", {"source": "https://example.org/model"}, "model.source", "accepted"),
        ("environment", {"name": "calculator", "tasks": "tasks.jsonl"}, "environment.tasks", "absolute"),
    ],
)
def test_a_bad_spec_is_refused_and_the_field_is_named(
    cast: Cast, section: str, change: dict[str, object], field: str, word: str
) -> None:
    response = cast.owner.call("POST", "jobs", cast.spec(**{section: change}))

    body = json.loads(response.content)
    assert response.status_code == 400
    assert response["Content-Type"] == "application/problem+json"
    assert field in {fault["field"] for fault in body["errors"]}
    assert word in body["detail"]
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "algorithm,field,word",
    [
        (
            {"name": "grpo", "off_policy": {"proximal": "current"}},
            "algorithm.off_policy.proximal",
            "truncate",
        ),
        (
            {"name": "cispo", "off_policy": {"proximal": "current"}},
            "algorithm.off_policy.proximal",
            "have no effect",
        ),
        (
            {"name": "dapo", "dual_clip": 3, "off_policy": {"proximal": "current", "importance": "truncate"}},
            "algorithm.dual_clip",
            "every ratio",
        ),
        ({"name": "grpo", "kl_estimator": "k1"}, "algorithm.kl_estimator", "'k2', 'k3'"),
    ],
)
def test_options_without_effect_are_refused_at_submission_but_stored_ones_load(
    cast: Cast, algorithm: dict[str, object], field: str, word: str
) -> None:
    response = cast.owner.call("POST", "jobs", cast.spec(algorithm=algorithm))

    assert response.status_code == 400, "a clip or a KL term without effect was accepted"
    body = json.loads(response.content)
    assert [fault["field"] for fault in body["errors"]] == [field]
    assert word in body["errors"][0]["detail"]
    assert not Job.objects.exists()
    assert JobSpec.model_validate({**cast.spec(), "algorithm": algorithm}).name


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "dapo", "off_policy": {"proximal": "current", "importance": "truncate"}},
        {"name": "dapo", "objective": "policy_gradient", "off_policy": {"proximal": "current"}},
        {"name": "rloo", "kl_estimator": "k1"},
        {"name": "dapo", "kl_estimator": "k1"},
    ],
)
def test_options_with_an_effect_are_accepted(cast: Cast, algorithm: dict[str, object]) -> None:
    assert cast.owner.call("POST", "jobs", cast.spec(algorithm=algorithm)).status_code == 201


def test_a_path_that_leaves_the_model_roots_through_a_link_is_refused(cast: Cast, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")

    response = cast.owner.call("POST", "jobs", cast.spec(model={"source": str(tmp_path / "link")}))

    assert response.status_code == 400
    assert b"not under MODEL_ROOTS" in response.content


def test_a_job_tells_how_much_memory_its_model_needs(cast: Cast) -> None:
    (cast.model / "config.json").write_text('{"model_type": "qwen3"}')
    assert json.loads(cast.owner.call("POST", "jobs", cast.spec()).content)["memory"] is None
    config = {
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "vocab_size": 100,
    }
    (cast.model / "config.json").write_text(json.dumps(config))
    weights_file(cast.model / "model.safetensors", {"model.embed_tokens.weight": (100, 8)})

    body = json.loads(cast.owner.call("POST", "jobs", cast.spec(train={"zero_stage": 0})).content)

    assert body["memory"]["train"]["least_bytes"] == 16 * 800
    parts = {part["name"]: part["num_bytes"] for part in body["memory"]["rollout"]["parts"]}
    assert (parts["weights"], parts["cache for one sequence"]) == (4 * 800, 4 * 4096 * 2 * 2 * 8)


def test_weights_that_cannot_be_read_are_refused_by_name(cast: Cast) -> None:
    (cast.model / "model.safetensors").write_bytes(b"no header")

    response = cast.owner.call("POST", "jobs", cast.spec())

    assert response.status_code == 400
    assert b"model.safetensors cannot be read" in response.content


@pytest.mark.parametrize(
    "change,words",
    [
        ({"vocab_size": 10**12}, "model/config.json: vocab_size is 1000000000000"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers is '2'; accepted: a whole number from 1 on"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"hidden_size": 10**7}, "hidden_size is 10000000"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"model_type": "evil"}, "model_type is 'evil'; accepted: a kind of causal language model"),
    ],
)
def test_a_model_that_nothing_can_load_is_refused_by_file_and_field(
    cast: Cast, change: dict[str, object], words: str
) -> None:
    (cast.model / "config.json").write_text(json.dumps({**PLAIN_CONFIG, **change}))
    response = cast.owner.call("POST", "jobs", cast.spec())
    assert response.status_code == 400
    (fault, *_) = json.loads(response.content)["errors"]
    assert fault["field"] == "model.source"
    assert words in fault["detail"]


def test_a_tokenizer_with_an_invalid_pattern_is_refused(cast: Cast) -> None:
    tokenizer = json.loads((cast.model / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False}
    (cast.model / "tokenizer.json").write_text(json.dumps({**tokenizer, "pre_tokenizer": split}))
    response = cast.owner.call("POST", "jobs", cast.spec())
    assert response.status_code == 400
    assert b"tokenizer.json" in response.content


def test_a_model_folder_without_a_tokenizer_is_named(cast: Cast) -> None:
    (cast.model / "tokenizer.json").unlink()

    response = cast.owner.call("POST", "jobs", cast.spec())

    assert response.status_code == 400
    assert b"lacks tokenizer.json" in response.content


@pytest.mark.parametrize("line", ["[1]", "{", '"text"'])
def test_the_first_bad_line_of_the_tasks_is_named(cast: Cast, line: str) -> None:
    cast.tasks.write_text(f'{{"a": 1}}\n{line}\n{{"b": 2}}\n')

    response = cast.owner.call("POST", "jobs", cast.spec())

    assert response.status_code == 400
    assert "environment.tasks: line 2" in json.loads(response.content)["detail"]


def test_a_nul_character_is_refused_before_it_reaches_the_database(cast: Cast) -> None:
    response = cast.owner.call("POST", "jobs", cast.spec(name="a\x00b"))

    assert response.status_code == 400
    assert b"NUL" in response.content


def test_an_outsider_sees_nothing_of_a_job(cast: Cast) -> None:
    shown = show_id(IdKind.JOB, cast.job().id)
    parts = ("", "/versions", "/metrics", "/events", "/phases", "/ledger")

    answers = [cast.outsider.call("GET", f"jobs/{shown}{part}").status_code for part in parts]
    verbs = [
        cast.outsider.call("POST", f"jobs/{shown}/{verb}", {}).status_code
        for verb in ("cancel", "pause", "resume")
    ]

    assert set(answers + verbs) == {404}
    assert json.loads(cast.outsider.call("GET", "jobs").content)["count"] == 0
    assert json.loads(cast.member.call("GET", "jobs").content)["count"] == 1


def test_events_can_be_filtered_by_subject(cast: Cast) -> None:
    shown = json.loads(cast.member.call("POST", "jobs", cast.spec()).content)["id"]
    path = f"jobs/{shown}/events"

    everything = json.loads(cast.member.call("GET", path).content)["results"]
    of_job = json.loads(cast.member.call("GET", f"{path}?subject=job,phase").content)["results"]
    of_groups = json.loads(cast.member.call("GET", f"{path}?subject=group").content)["results"]
    refused = cast.member.call("GET", f"{path}?subject=job,grup")

    assert [event["kind"] for event in of_job] == ["job.state"]
    assert of_job == everything
    assert of_groups == []
    assert refused.status_code == 400
    assert "'grup' is not accepted; accepted: job, phase, version, group" in refused.content.decode()


def test_an_artifact_of_another_project_is_not_found(cast: Cast) -> None:
    response = cast.outsider.call(
        "POST", "jobs", cast.spec(model={"source": "artifact://art_00000000000000000000000000"})
    )

    assert b"no artifact" in response.content


def test_steering_a_job_refuses_an_unknown_key(cast: Cast) -> None:
    path = f"jobs/{show_id(IdKind.JOB, cast.job().id)}/pause"

    refused = cast.owner.call("POST", path, {"reson": "lunch"})

    assert (refused.status_code, b"accepted: reason" in refused.content) == (400, True)
    assert cast.owner.call("POST", path).status_code == 200, "a reason may be left out"


def test_cancelling_edits_the_desired_state_once(cast: Cast) -> None:
    job = cast.job()
    path = f"jobs/{show_id(IdKind.JOB, job.id)}"

    first = cast.owner.call("POST", f"{path}/cancel", {"reason": "wrong model"})
    again = cast.owner.call("POST", f"{path}/cancel", {"reason": "wrong model"})
    resumed = cast.owner.call("POST", f"{path}/resume", {})

    assert (first.status_code, again.status_code, resumed.status_code) == (200, 200, 409)
    job.refresh_from_db()
    assert (job.desired, job.state, job.generation) == ("cancel", "queued", 2)
    assert Event.objects.filter(kind="job.desired", reason="wrong model").count() == 1


def test_a_job_moves_only_as_the_table_allows_and_reaches_one_terminal_state(cast: Cast) -> None:
    job = cast.job(is_running=True)

    assert job_move(job_id=job.id, to=JobState.COMPLETED, reason="done", author="scheduler")
    assert not job_move(job_id=job.id, to=JobState.CANCELLED, reason="late", author="scheduler")

    job.refresh_from_db()
    assert (job.state, job.state_reason) == ("completed", "done")
    assert job.started_at is not None
    assert job.ended_at is not None
    moves = Event.objects.filter(kind="job.state").order_by("id").values_list("from_state", "to_state")
    assert list(moves) == [
        ("", "queued"),
        ("queued", "starting"),
        ("starting", "running"),
        ("running", "completed"),
    ]


def test_the_list_filters_and_counts_with_a_fixed_number_of_queries(cast: Cast) -> None:
    for _ in range(3):
        cast.job()
    with CaptureQueriesContext(connection) as few:
        assert len(json.loads(cast.owner.call("GET", "jobs?limit=1").content)["results"]) == 1
    with CaptureQueriesContext(connection) as many:
        page = json.loads(cast.owner.call("GET", "jobs?state=queued").content)

    assert (page["count"], len(page["results"])) == (3, 3)
    assert len(many) <= len(few)  # the first call also notes when the token was used
    refused = cast.owner.call("GET", "jobs?state=sleeping")
    assert refused.status_code == 400
    assert b"queued" in refused.content


@pytest.mark.parametrize(
    "method,path,status",
    [
        ("GET", "nothing", 404),
        ("GET", "jobs/job_short", 404),
        ("DELETE", "jobs", 405),
        ("GET", "jobs?limit=x", 400),
    ],
)
def test_every_refusal_is_an_rfc_9457_problem(cast: Cast, method: str, path: str, status: int) -> None:
    response = cast.owner.call(method, path)

    body = json.loads(response.content)
    assert response.status_code == body["status"] == status
    assert response["Content-Type"] == "application/problem+json"
    assert body["detail"]


def test_missing_and_unknown_tokens_are_refused(cast: Cast) -> None:
    missing = Client().get("/api/v1/jobs")
    unknown = Client().get("/api/v1/jobs", headers={"Authorization": "Bearer sft_unknown"})

    assert (missing.status_code, unknown.status_code) == (401, 401)
    assert missing["Content-Type"] == unknown["Content-Type"] == "application/problem+json"
    assert missing["WWW-Authenticate"].startswith("Bearer")


def test_a_body_that_is_not_json_is_answered_with_a_problem(cast: Cast) -> None:
    response = Client().post(
        "/api/v1/jobs",
        "{",
        content_type="application/json",
        headers={"Authorization": f"Bearer {cast.owner.secret}"},
    )

    assert response.status_code == 400
    assert b"JSON" in response.content


@pytest.mark.parametrize(
    "tasks,words",
    [
        ('{"domain": "math"}\n{"domain": "code"}\n{}\n', "has the domain 'coding'; accepted: code, math"),
        ("{}\n", "has the domain 'coding'; its tasks name none"),
    ],
)
def test_a_stage_without_tasks_is_refused_before_the_job_reaches_it(
    cast: Cast, tasks: str, words: str
) -> None:
    cast.tasks.write_text(tasks)
    stages = [{"name": "first"}, {"name": "second", "domains": ["coding"]}]

    response = cast.member.call(
        "POST", "jobs", {**cast.spec(), "algorithm": {"name": "srpo", "stages": stages}}
    )

    assert response.status_code == 400
    (error,) = json.loads(response.content)["errors"]
    assert error["field"] == "algorithm.stages.1.domains"
    assert words in error["detail"]
    assert not Job.objects.exists()


def test_a_stage_is_switched_by_name_with_an_event_and_an_author(cast: Cast) -> None:
    cast.tasks.write_text(
        '{"question": "7+12", "answer": "19", "domain": "math"}\n{"question": "2", "domain": "code"}\n'
    )
    stages = [{"name": "first", "domains": ["math"]}, {"name": "second"}]
    spec = {**cast.spec(), "algorithm": {"name": "srpo", "stages": stages}}
    shown = json.loads(cast.member.call("POST", "jobs", spec).content)["id"]

    body = {"stage": "second", "reason": "it reasons well enough"}
    response = cast.member.call("POST", f"jobs/{shown}/stage", body)

    assert response.status_code == 200, response.content
    job = Job.objects.get()
    assert (job.stage_requested, job.stage_request) == (1, 1)
    event = Event.objects.get(kind="job.stage")
    assert (event.author, event.reason) == ("user:mira", "it reasons well enough")
    assert event.data == {"to": "second", "generation": job.generation}
    refused = cast.member.call("POST", f"jobs/{shown}/stage", {"stage": "third"})
    assert refused.status_code == 400
    assert "no stage 'third'; accepted: first, second" in json.loads(refused.content)["detail"]
    assert cast.outsider.call("POST", f"jobs/{shown}/stage", body).status_code == 404
    assert Job.objects.get().stage_request == 1


def test_a_submission_repeated_with_its_key_is_the_same_job(cast: Cast) -> None:
    key = {"Idempotency-Key": "ci-run-17"}

    first = cast.member.call("POST", "jobs", cast.spec(), **key)
    again = cast.owner.call("POST", "jobs", cast.spec(), **key)
    other_key = cast.member.call("POST", "jobs", cast.spec(), **{"Idempotency-Key": "ci-run-18"})

    assert (first.status_code, again.status_code, other_key.status_code) == (201, 200, 201)
    assert json.loads(first.content)["id"] == json.loads(again.content)["id"]
    assert Job.objects.count() == 2
    assert Event.objects.filter(kind="job.state").count() == 2


def test_a_key_belongs_to_one_spec_and_one_project(cast: Cast) -> None:
    key = {"Idempotency-Key": "ci-run-17"}
    cast.member.call("POST", "jobs", cast.spec(), **key)

    other_spec = cast.member.call("POST", "jobs", cast.spec(name="another"), **key)
    elsewhere = cast.outsider.call("POST", "jobs", cast.spec(), **key)
    unusable = cast.member.call("POST", "jobs", cast.spec(), **{"Idempotency-Key": "k" * 201})

    assert other_spec.status_code == 422
    assert "another spec" in json.loads(other_spec.content)["detail"]
    assert elsewhere.status_code == 201
    assert unusable.status_code == 400
    assert [fault["field"] for fault in json.loads(unusable.content)["errors"]] == ["Idempotency-Key"]
    assert Job.objects.count() == 2


def test_a_refused_submission_does_not_use_up_its_key(cast: Cast) -> None:
    key = {"Idempotency-Key": "ci-run-17"}

    assert cast.member.call("POST", "jobs", cast.spec(model={"source": "/etc"}), **key).status_code == 400
    assert cast.member.call("POST", "jobs", cast.spec(), **key).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_many_simultaneous_requests_with_one_key_create_one_job(cast: Cast, live_server: LiveServer) -> None:
    def send(_: int) -> tuple[int, str]:
        answer = httpx.post(
            f"{live_server.url}/api/v1/jobs",
            json=cast.spec(),
            headers={"Authorization": f"Bearer {cast.member.secret}", "Idempotency-Key": "ci-run-17"},
            timeout=60,
        )
        return answer.status_code, answer.json()["id"]

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(send, range(8)))

    assert sorted(status for status, _ in answers) == [200] * 7 + [201]
    assert len({job_id for _, job_id in answers}) == 1
    assert Job.objects.count() == 1


def test_the_duration_of_a_job_is_what_it_ran_without_its_pauses(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, past_s = timezone.now(), [0.0]

    def now() -> datetime:
        return start + timedelta(seconds=past_s[0])

    for reader in ("services.moves", "apis.serializers"):
        monkeypatch.setattr(f"seamlessflow.control_plane.jobs.{reader}.database_now", now)
    job = cast.job()

    def move(to: JobState, at_s: float) -> None:
        past_s[0] = at_s
        assert job_move(job_id=job.id, to=to, reason="test", author="test")

    def duration_s(at_s: float) -> object:
        past_s[0] = at_s
        answer = json.loads(cast.owner.call("GET", f"jobs/{show_id(IdKind.JOB, job.id)}").content)
        return answer.get("duration_s", "not shown")

    move(JobState.PAUSED, 5.0)
    assert duration_s(10.0) is None, "it has not started"
    for to, at_s in ((JobState.QUEUED, 10.0), (JobState.STARTING, 11.0), (JobState.RUNNING, 20.0)):
        move(to, at_s)
    assert duration_s(30.0) == 10.0
    move(JobState.PAUSING, 40.0)
    move(JobState.PAUSED, 50.0)
    assert duration_s(900.0) == 30.0, "paused time does not count"
    for to in (JobState.QUEUED, JobState.STARTING, JobState.RUNNING):
        move(to, 1000.0)
    assert duration_s(1010.0) == 40.0
    move(JobState.PAUSING, 1010.0)
    move(JobState.PAUSED, 1010.0)
    move(JobState.CANCELLED, 2000.0)
    assert duration_s(3000.0) == 40.0
