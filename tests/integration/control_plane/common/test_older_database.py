"""A database from before the first release is refused in one sentence and left unchanged."""

from pathlib import Path

import psycopg

from tests.fixtures.gateway_world import migrate_run

TABLES = "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'public'"


def test_an_older_database_is_refused_in_one_sentence(
    migrated_database_url: str, embedded_services: dict[str, str], tmp_path: Path
) -> None:
    services = embedded_services | {"DATABASE_URL": migrated_database_url}
    with psycopg.connect(migrated_database_url, autocommit=True) as connection:
        before = connection.execute(TABLES).fetchone()
        connection.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('jobs', '0001_initial', now())"
        )

        finished = migrate_run(services, artifacts=tmp_path)

        assert connection.execute(TABLES).fetchone() == before
    assert finished.returncode == 1
    (sentence,) = finished.stderr.decode().splitlines()
    assert "was made before the first release" in sentence


def test_a_current_database_can_be_migrated_repeatedly(
    migrated_database_url: str, embedded_services: dict[str, str], tmp_path: Path
) -> None:
    services = embedded_services | {"DATABASE_URL": migrated_database_url}
    assert migrate_run(services, artifacts=tmp_path).returncode == 0
