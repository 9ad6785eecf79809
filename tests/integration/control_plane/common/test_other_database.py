"""A database from before the first release, or of a newer version, is refused in one sentence and left unchanged."""

from pathlib import Path

import psycopg
import pytest

from tests.fixtures.gateway_world import migrate_run

TABLES = "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'public'"


@pytest.mark.parametrize(
    "app, name, sentence",
    [
        ("jobs", "0001_initial", "This database was made before the first release"),
        ("cluster", "0999_of_tomorrow", "migrated by a newer version (cluster.0999_of_tomorrow)"),
    ],
)
def test_a_database_of_another_version_is_refused_in_one_sentence(
    app: str,
    name: str,
    sentence: str,
    migrated_database_url: str,
    embedded_services: dict[str, str],
    tmp_path: Path,
) -> None:
    services = embedded_services | {"DATABASE_URL": migrated_database_url}
    with psycopg.connect(migrated_database_url, autocommit=True) as connection:
        before = connection.execute(TABLES).fetchone()
        connection.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, now())", [app, name]
        )

        finished = migrate_run(services, artifacts=tmp_path)

        assert connection.execute(TABLES).fetchone() == before
    assert finished.returncode == 1
    (said,) = finished.stderr.decode().splitlines()
    assert sentence in said


def test_a_current_database_can_be_migrated_repeatedly(
    migrated_database_url: str, embedded_services: dict[str, str], tmp_path: Path
) -> None:
    services = embedded_services | {"DATABASE_URL": migrated_database_url}
    assert migrate_run(services, artifacts=tmp_path).returncode == 0
