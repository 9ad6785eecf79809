"""What an upgrade makes of specs that are stored."""

import importlib
from typing import Any

import pytest
from django.db import connection

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.core.job_spec import job_spec_parse
from tests.fixtures.control_plane import Cast

MIGRATIONS = "seamlessflow.control_plane.jobs.migrations"
TURNS = importlib.import_module(f"{MIGRATIONS}.0010_turns_of_own_loops")
TRANSPORTS = importlib.import_module(f"{MIGRATIONS}.0011_no_cuda_ipc")


@pytest.mark.parametrize(
    "name,before,after",
    [("external", 8, 1000), ("command", 8, 1000), ("command", 20, 20), ("calculator", 8, 8)],
)
def test_programs_with_loops_of_their_own_get_the_turns_that_they_had(
    cast: Cast, name: str, before: int, after: int
) -> None:
    job = cast.job()
    job.spec["environment"] |= {"name": name, "max_turns": before}
    job.save(update_fields=["spec"])
    assert spec_after(job, TURNS.RAISE)["environment"]["max_turns"] == after


@pytest.mark.parametrize("before,after", [("cuda_ipc", "ipc"), ("nccl", "nccl"), ("auto", "auto")])
def test_a_transport_that_was_removed_becomes_the_one_of_the_same_hosts(
    cast: Cast, before: str, after: str
) -> None:
    job = cast.job()
    job.spec["train"] |= {"weight_transport": before}
    job.save(update_fields=["spec"])
    spec = spec_after(job, TRANSPORTS.REPLACE)
    assert spec["train"]["weight_transport"] == after
    job_spec_parse(spec)


def spec_after(job: Job, statement: str) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
    spec: dict[str, Any] = Job.objects.get(id=job.id).spec
    return spec
