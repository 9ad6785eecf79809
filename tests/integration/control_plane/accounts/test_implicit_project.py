"""A caller in several projects who names none changes none of them, whatever the address."""

from collections.abc import Iterator

import pytest
import yaml
from django.http import HttpResponse

from seamlessflow.control_plane.accounts.models import Membership, Project
from seamlessflow.core.access.routes import API
from tests.fixtures.control_plane import Cast, Person
from tests.fixtures.repository import ROOT

# Their project is in the body instead of the address.
IN_THE_BODY = {("POST", "tokens"): {"name": "x"}}


def of_one_project() -> Iterator[tuple[str, str]]:
    """Yield the method and path of each operation whose `project` may be left out by callers in one project only."""
    for path, methods in yaml.safe_load((ROOT / "api_schema" / "openapi.yaml").read_text())["paths"].items():
        for method, operation in methods.items():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "project" and "May be left out" in parameter.get("description", ""):
                    yield method.upper(), path.removeprefix(f"/{API}")


def is_refused(answer: HttpResponse) -> bool:
    told = (b"project: is required", b"default, elsewhere")
    return answer.status_code == 400 and all(part in answer.content for part in told)


@pytest.fixture
def both(cast: Cast) -> Person:
    """The owner of two projects, of which one is named `default`, with a token for both."""
    Membership.objects.create(user=cast.owner.user, project=cast.outsider.project, role="owner")
    assert {"default", "elsewhere"} == set(Project.objects.values_list("slug", flat=True))
    return cast.operator


def test_a_request_that_names_none_of_several_projects_is_refused(cast: Cast, both: Person) -> None:
    bodies: dict[tuple[str, str], dict[str, str]] = {key: {} for key in of_one_project()} | IN_THE_BODY
    assert {("PATCH", "storage/policy"), ("POST", "jobs"), ("POST", "uploads")} < set(bodies)

    answers = {key: both.call(*key, bodies[key]) for key in bodies}
    taken = {key: answer.content for key, answer in answers.items() if not is_refused(answer)}

    assert taken == {}


def test_the_only_project_of_a_caller_needs_no_name(cast: Cast) -> None:
    answer = cast.outsider.call("PATCH", "storage/policy", {"settings": {"logs_days": 9}, "reset": []})

    assert (answer.status_code, b'"project":"elsewhere"' in answer.content) == (200, True)
