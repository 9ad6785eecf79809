"""The admin site obeys the table of operations: having all of Django's permissions grants nothing
more."""

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from seamlessflow.control_plane.accounts.models import Membership, Project, Token, User
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from tests.fixtures.control_plane import Cast


@pytest.fixture
def staff(cast: Cast) -> User:
    """A viewer of the project who is staff and has every permission of Django."""
    user = User.objects.create_user("stan", is_staff=True)
    user.user_permissions.set(Permission.objects.all())
    Membership.objects.create(user=user, project=cast.owner.project, role="viewer")
    return user


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def act(user: User, page: str, action: str, *ids: object) -> HttpResponse:
    body = {"action": action, "_selected_action": [str(one) for one in ids], "reason": "test"}
    return browser(user).post(f"/admin/{page}/", body, follow=True)  # type: ignore[return-value]


def test_staff_cannot_steer_jobs_of_others(cast: Cast, staff: User) -> None:
    job = cast.job(is_running=True)

    answer = act(staff, "jobs/job", "cancel", job.id)

    assert (Job.objects.get(id=job.id).desired, b"that needs the role owner" in answer.content) == (
        "run",
        True,
    )
    Membership.objects.filter(user=staff).update(role="owner")
    act(staff, "jobs/job", "cancel", job.id)
    assert Job.objects.get(id=job.id).desired == "cancel"


def test_staff_cannot_pin_versions_or_revoke_tokens_of_others(cast: Cast, staff: User) -> None:
    job = cast.job()
    version = PolicyVersion.objects.create(
        project_id=job.project_id, job=job, version=1, batch_number=1, uri="file:///v", published_at=timezone.now()
    )  # fmt: skip
    token = Token.objects.get(user=cast.owner.user, project=cast.owner.project)

    act(staff, "policies/policyversion", "pin", version.id)
    answer = act(staff, "accounts/token", "revoke", token.id)

    assert not PolicyVersion.objects.get(id=version.id).is_pinned
    assert Token.objects.get(id=token.id).revoked_at is None
    assert b"you may not revoke tokens here" in answer.content


def test_staff_cannot_give_themselves_powers_or_set_passwords(cast: Cast, staff: User) -> None:
    page = f"/admin/accounts/user/{staff.id}/change/"
    body = {
        "username": "stan", "is_active": "on", "is_staff": "on", "is_superuser": "on",
        "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00",
    }  # fmt: skip
    answer = browser(staff).post(page, body)
    password = {
        "password1": "a-long-enough-password",
        "password2": "a-long-enough-password",
        "usable_password": "true",
    }
    other = browser(staff).post(f"/admin/accounts/user/{cast.member.user.id}/password/", password)

    staff.refresh_from_db()
    assert (answer.status_code, staff.is_superuser, staff.is_staff) == (302, False, True)
    assert (other.status_code, User.objects.get(id=cast.member.user.id).has_usable_password()) == (403, False)
    assert browser(staff).get("/admin/auth/group/").status_code == 404


def test_staff_cannot_add_people_to_projects_of_others(cast: Cast, staff: User) -> None:
    project = cast.outsider.project
    body = {
        "slug": project.slug, "name": project.name, "memberships-TOTAL_FORMS": "1", "memberships-INITIAL_FORMS": "0",
        "memberships-0-user": str(staff.id), "memberships-0-role": "owner", "memberships-0-project": str(project.id),
    }  # fmt: skip
    browser(staff).post(f"/admin/accounts/project/{project.id}/change/", body)
    assert not Membership.objects.filter(user=staff, project=project).exists()

    Membership.objects.create(user=staff, project=project, role="owner")
    body |= {"memberships-0-user": str(cast.member.user.id), "memberships-0-role": "viewer"}
    browser(staff).post(f"/admin/accounts/project/{project.id}/change/", body)
    assert Membership.objects.filter(user=cast.member.user, project=project, role="viewer").exists()


def test_only_superusers_set_what_a_project_gets_of_the_machines(cast: Cast, staff: User) -> None:
    project = cast.owner.project
    body = {
        "slug": project.slug, "name": "renamed", "weight": "5", "machine_quota": "2", "priority_ceiling": "9",
        "memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0",
    }  # fmt: skip

    def post(user: User) -> tuple[str, float, int | None, int]:
        browser(user).post(f"/admin/accounts/project/{project.id}/change/", body)
        project.refresh_from_db()
        return project.name, project.weight, project.machine_quota, project.priority_ceiling

    assert post(staff) == ("renamed", 1.0, None, 0)
    assert post(User.objects.create_superuser("root")) == ("renamed", 5.0, 2, 9)


def test_staff_cannot_edit_retention_policies_of_others(cast: Cast, staff: User) -> None:
    policies = apps.get_model("storage", "RetentionPolicy").objects

    def policy(project: Project | None) -> int:
        body = {"project": project.id if project else "", "settings": '{"logs_days": 1}'}
        return int(browser(staff).post("/admin/storage/retentionpolicy/add/", body).status_code)

    assert (policy(cast.owner.project), policies.count()) == (200, 0)
    assert policy(None) == 302, "the installation's is the operators'"
    Membership.objects.filter(user=staff).update(role="owner")
    assert policy(cast.owner.project) == 302
    assert Event.objects.filter(kind="retention.edited").count() == 2
