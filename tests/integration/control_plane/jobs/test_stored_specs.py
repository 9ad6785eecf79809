"""What an upgrade makes of specs that are stored."""

import importlib

import pytest
from django.db import connection

from seamlessflow.control_plane.jobs.models import Job
from tests.fixtures.control_plane import Cast

MIGRATION = importlib.import_module("seamlessflow.control_plane.jobs.migrations.0010_turns_of_own_loops")


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
    with connection.cursor() as cursor:
        cursor.execute(MIGRATION.RAISE)
    assert Job.objects.get(id=job.id).spec["environment"]["max_turns"] == after
