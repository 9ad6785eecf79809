"""A database from before the first release, of a newer version or of another project is refused in one sentence and
left unchanged, by `migrate` and by `seamlessflow up`."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.gateway_world import migrate_run

OLD_DUMP = Path(__file__).with_name("before_first_release.sql")
OLD = "This database was made before the first release and cannot be migrated."
COLUMNS = "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'public'"
RECORD = "SELECT app, name FROM django_migrations ORDER BY id"
UP_TIMEOUT_S = 60


@pytest.fixture
def old_database_url(fresh_database_url: str) -> str:
    """The address of a database as the version before the squashed migrations left it."""
    with psycopg.connect(fresh_database_url, autocommit=True) as connection:
        connection.execute(OLD_DUMP.read_bytes())
    return fresh_database_url


def contents(database_url: str) -> list[object]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        return [connection.execute(question).fetchall() for question in (COLUMNS, RECORD)]


def only_line(errors: str) -> str:
    lines = errors.splitlines()
    assert len(lines) == 1, errors
    return lines[0]


def test_migrate_refuses_a_database_from_before_the_first_release(
    old_database_url: str, embedded_services: dict[str, str], tmp_path: Path
) -> None:
    before = contents(old_database_url)

    finished = migrate_run(embedded_services | {"DATABASE_URL": old_database_url}, artifacts=tmp_path)

    said = only_line(finished.stderr.decode())
    assert OLD in said
    assert "Use an empty database" in said
    assert finished.returncode == 1
    assert contents(old_database_url) == before


def test_up_says_the_same_of_such_a_database(
    old_database_url: str, embedded_services: dict[str, str], tmp_path: Path
) -> None:
    before = contents(old_database_url)

    finished = subprocess.run(
        [sys.executable, "-m", "seamlessflow.cli", "up", "--no-machines"],
        env=os.environ
        | embedded_services
        | {"DATABASE_URL": old_database_url, "GATEWAY_DATABASE_URL": "", "SEAMLESSFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=UP_TIMEOUT_S,
        check=False,
    )

    said = only_line(finished.stderr)
    assert said.startswith(f"error: {OLD}")
    assert "SEAMLESSFLOW_HOME" in said
    assert finished.returncode == 1
    assert contents(old_database_url) == before


def test_a_database_of_a_newer_version_is_refused_in_one_sentence(
    migrated_database_url: str, embedded_services: dict[str, str], tmp_path: Path
) -> None:
    with psycopg.connect(migrated_database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('cluster', '0999_of_tomorrow', now())"
        )
    before = contents(migrated_database_url)

    finished = migrate_run(embedded_services | {"DATABASE_URL": migrated_database_url}, artifacts=tmp_path)

    assert contents(migrated_database_url) == before
    assert finished.returncode == 1
    said = only_line(finished.stderr.decode())
    assert "migrated by a newer version (cluster.0999_of_tomorrow)" in said


def test_a_database_of_another_project_is_refused_in_one_sentence(
    old_database_url: str, embedded_services: dict[str, str], tmp_path: Path
) -> None:
    """Django's own tables are there, and none of ours."""
    with psycopg.connect(old_database_url, autocommit=True) as connection:
        connection.execute(
            "DELETE FROM django_migrations WHERE app NOT IN ('contenttypes', 'auth', 'admin', 'sessions')"
        )
    before = contents(old_database_url)

    finished = migrate_run(embedded_services | {"DATABASE_URL": old_database_url}, artifacts=tmp_path)

    said = only_line(finished.stderr.decode())
    assert "admin.0001_initial" in said
    assert "Use an empty database" in said
    assert finished.returncode == 1
    assert contents(old_database_url) == before


def test_a_current_database_can_be_migrated_repeatedly(
    migrated_database_url: str, embedded_services: dict[str, str], tmp_path: Path
) -> None:
    services = embedded_services | {"DATABASE_URL": migrated_database_url}
    assert migrate_run(services, artifacts=tmp_path).returncode == 0
