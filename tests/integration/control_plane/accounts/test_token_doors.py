"""What tokens and roles allow, and what they no longer allow: jobs and tokens of others, machines,
further tokens."""

import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from seamlessflow.control_plane.accounts.models import Membership, Token
from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, Person, worker_make

EDIT = {"tags": [], "reason": "test"}


def job_path(job: Job, verb: str) -> str:
    return f"jobs/{show_id(IdKind.JOB, job.id)}/{verb}"


def token_path(person: Person) -> str:
    token = person.user.tokens.get(name="test")
    return f"tokens/{show_id(IdKind.TOKEN, token.id)}"


def test_a_member_steers_only_their_own_jobs(cast: Cast) -> None:
    others, own = cast.job(), cast.job(name="own")
    Job.objects.filter(id=own.id).update(created_by=cast.member.user)

    answers = {
        verb: cast.member.call("POST", job_path(others, verb)) for verb in ("pause", "resume", "cancel")
    }

    assert {verb: answer.status_code for verb, answer in answers.items()} == dict.fromkeys(answers, 403)
    assert b"needs the role owner, or member for what you made yourself" in answers["cancel"].content
    others.refresh_from_db()
    assert others.desired == "run"
    assert cast.member.call("POST", job_path(own, "cancel")).status_code == 200
    assert cast.owner.call("POST", job_path(others, "cancel")).status_code == 200


def test_each_role_steers_and_revokes_only_what_it_may(cast: Cast) -> None:
    """The answers are for one's own job, the job of another, and the token of another."""
    answers = {}
    for role in ("viewer", "member", "owner"):
        Membership.objects.filter(user=cast.member.user).update(role=role)
        own, others = cast.job(name=f"{role}-own"), cast.job(name=f"{role}-others")
        Job.objects.filter(id=own.id).update(created_by=cast.member.user)
        token = Token.objects.get(user=cast.outsider.user)
        Token.objects.filter(id=token.id).update(project=cast.owner.project, revoked_at=None)
        answers[role] = [
            cast.member.call("POST", job_path(own, "pause")).status_code,
            cast.member.call("POST", job_path(others, "pause")).status_code,
            cast.member.call("DELETE", f"tokens/{show_id(IdKind.TOKEN, token.id)}").status_code,
        ]
    assert answers == {"viewer": [403, 403, 403], "member": [200, 403, 403], "owner": [200, 200, 204]}


def test_a_read_only_token_cannot_submit(cast: Cast) -> None:
    made = cast.member.call("POST", "tokens", {"name": "ci", "scopes": ["read"]})
    reader = Person(cast.member.user, cast.member.project, json.loads(made.content)["secret"])

    assert reader.call("GET", "jobs").status_code == 200
    assert reader.call("POST", "jobs", cast.spec()).status_code == 403
    assert reader.call("POST", "tokens", {"name": "more"}).status_code == 403


def test_a_member_revokes_only_their_own_tokens(cast: Cast) -> None:
    assert cast.member.call("DELETE", token_path(cast.owner)).status_code == 403
    assert cast.owner.call("GET", "jobs").status_code == 200
    assert cast.owner.call("DELETE", token_path(cast.member)).status_code == 204
    assert cast.member.call("GET", "jobs").status_code == 401


def test_a_project_token_cannot_edit_machines_whoever_created_it(cast: Cast) -> None:
    machine = worker_make("alpha", "rollout").machine
    path = f"machines/{show_id(IdKind.MACHINE, machine.id)}"

    assert cast.owner.user.is_staff
    answers = {
        "edit": cast.owner.call("PATCH", path, EDIT, **{"If-Match": '"1"'}),
        "take over": cast.owner.call("POST", "machines", {"name": "alpha", "tags": ["rollout"]}),
        "preview": cast.owner.call("POST", "machines/preview", {"edits": []}),
    }
    assert {verb: answer.status_code for verb, answer in answers.items()} == dict.fromkeys(answers, 403)
    assert Machine.objects.get(id=machine.id).generation == 1
    assert Token.objects.filter(machine=machine).count() == 1

    browser = Client()
    browser.force_login(cast.owner.user)
    edited = browser.patch(
        f"/api/v1/{path}", json.dumps(EDIT), content_type="application/json", headers={"If-Match": '"1"'}
    )
    assert edited.status_code == 200


def test_a_new_token_expires(cast: Cast) -> None:
    created = json.loads(cast.member.call("POST", "tokens", {"name": "ci"}).content)

    assert created["expires_at"] is not None
    token = Token.objects.get(name="ci")
    assert token.expires_at is not None
    assert timedelta(days=89) < token.expires_at - timezone.now() <= timedelta(days=90)
    Token.objects.filter(id=token.id).update(expires_at=timezone.now())
    headers = {"Authorization": f"Bearer {created['secret']}"}
    assert Client().get("/api/v1/jobs", headers=headers).status_code == 401


def test_a_token_cannot_create_a_more_powerful_token(cast: Cast) -> None:
    made = cast.member.call(
        "POST", "tokens", {"name": "ci", "scopes": ["read", "admin"], "expires_in_days": 5}
    )
    ci = Person(cast.member.user, cast.member.project, json.loads(made.content)["secret"])

    wider = ci.call("POST", "tokens", {"name": "x", "scopes": ["submit"]})
    longer = ci.call("POST", "tokens", {"name": "x", "expires_in_days": 6})
    unknown = ci.call("POST", "tokens", {"name": "x", "scopes": ["everything"]})
    fits = json.loads(ci.call("POST", "tokens", {"name": "y"}).content)

    assert (wider.status_code, longer.status_code, unknown.status_code) == (403, 403, 400)
    assert b"'submit' cannot be given to this token; accepted: admin, read" in wider.content
    assert b"expires_in_days" in longer.content
    assert (fits["scopes"], fits["project"]) == (["read"], "default")
    assert fits["expires_at"] == json.loads(made.content)["expires_at"]
    reader = Person(cast.member.user, cast.member.project, fits["secret"])
    assert reader.call("POST", "tokens", {"name": "z", "scopes": ["read"]}).status_code == 403
    assert reader.call("POST", "jobs", cast.spec()).status_code == 403
    assert reader.call("GET", "jobs").status_code == 200


def test_only_operators_create_tokens_for_the_installation(cast: Cast) -> None:
    fields = {"name": "ops", "installation": True, "scopes": ["operate", "read"]}
    assert cast.member.call("POST", "tokens", fields).status_code == 403
    assert cast.owner.call("POST", "tokens", fields).status_code == 403
    browser = Client()
    browser.force_login(cast.owner.user)
    made = browser.post("/api/v1/tokens", json.dumps(fields), content_type="application/json")

    assert made.status_code == 201
    operator = Person(cast.owner.user, cast.owner.project, made.json()["secret"])
    assert operator.call("POST", "machines", {"name": "gamma", "tags": ["rollout"]}).status_code == 201
    assert operator.call("POST", "jobs", cast.spec()).status_code == 403
    assert b"ops" not in cast.member.call("GET", "tokens").content
    cast.owner.user.is_staff = False
    cast.owner.user.save()
    assert operator.call("POST", "machines", {"name": "delta", "tags": []}).status_code == 403


def test_losing_a_role_takes_effect_at_once(cast: Cast) -> None:
    Membership.objects.filter(user=cast.member.user).update(role="viewer")

    assert cast.member.call("POST", "jobs", cast.spec()).status_code == 403
    assert cast.member.call("GET", "jobs").status_code == 200
    me = json.loads(cast.member.call("GET", "me").content)
    assert [(one["slug"], one["role"], one["may_write"]) for one in me["projects"]] == [
        ("default", "viewer", False)
    ]


@pytest.mark.django_db
def test_commands_create_tokens_with_scopes_and_an_expiry(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("ensure_owner")
    call_command("create_token", "--name", "ci")
    call_command(
        "create_token", "--name", "cli", "--installation", "--scopes", "operate,read", "--never-expires"
    )

    ci, cli = Token.objects.get(name="ci"), Token.objects.get(name="cli")
    assert (ci.scopes, ci.expires_at is None) == (["read", "sessions", "submit"], False)
    assert (cli.scopes, cli.expires_at, cli.project) == (["operate", "read"], None, None)
    secret = capsys.readouterr().out.split()[-1]
    answer = Client().get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"})
    assert answer.json()["is_staff"] is True
