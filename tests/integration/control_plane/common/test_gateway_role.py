"""The gateway's own database role: what it is granted, and what PostgreSQL refuses it."""

from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection, transaction
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from pytest_django import Settings

from seamlessflow.cli.local.migration import gateway_database
from seamlessflow.control_plane.common.database.address import DatabaseAddress
from seamlessflow.control_plane.common.database.gateway_role import gateway_role_grant
from seamlessflow.core.access.gateway_grants import ALL, GATEWAY_ROLE, GRANTS, Grant, grant_statements

REFUSED = (
    "SELECT * FROM accounts_token",
    "SELECT name FROM accounts_token",
    "UPDATE accounts_token SET revoked_at = now()",
    "UPDATE accounts_token SET scopes = '{admin}'",
    "INSERT INTO accounts_token (id) VALUES (gen_random_uuid())",
    "SELECT password FROM accounts_user",
    "SELECT email, username FROM accounts_user",
    "UPDATE accounts_user SET is_superuser = true",
    "UPDATE accounts_membership SET role = 'owner'",
    "INSERT INTO accounts_membership (id) VALUES (gen_random_uuid())",
    "SELECT session_data FROM django_session",
    "UPDATE jobs_job SET spec = '{}'",
    "DELETE FROM jobs_job",
    "UPDATE cluster_machine SET tags = '{}'",
    "UPDATE scheduling_phase SET state = 'active'",
    "UPDATE policies_policyversion SET is_pinned = true",
    "SELECT author FROM common_event",
    "DELETE FROM common_event",
    "DELETE FROM trajectory_node",
    "TRUNCATE trajectory_group",
    "CREATE TABLE mine (id int)",
    "CREATE ROLE another",
)


@pytest.fixture
def role_url(migrated_database_url: str, embedded_services: dict[str, str]) -> str:
    name = str(conninfo_to_dict(migrated_database_url)["dbname"])
    return embedded_services["GATEWAY_DATABASE_URL"].replace("/seamlessflow?", f"/{name}?")


@pytest.mark.parametrize("statement", REFUSED)
def test_the_gateway_is_refused_what_it_does_not_need(role_url: str, statement: str) -> None:
    with psycopg.connect(role_url) as opened, pytest.raises(errors.InsufficientPrivilege):
        opened.execute(statement)


def test_the_database_has_exactly_the_stated_grants(migrated_database_url: str) -> None:
    with psycopg.connect(migrated_database_url) as opened:
        rows = opened.execute(
            "SELECT table_name, privilege_type, column_name FROM information_schema.column_privileges "
            "WHERE grantee = %s",
            [GATEWAY_ROLE],
        ).fetchall()
        deletes = opened.execute(
            "SELECT table_name FROM information_schema.table_privileges "
            "WHERE grantee = %s AND privilege_type NOT IN ('SELECT', 'INSERT', 'UPDATE')",
            [GATEWAY_ROLE],
        ).fetchall()
        columns = opened.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        ).fetchall()
    by_table: dict[str, set[str]] = {}
    for table, column in columns:
        by_table.setdefault(table, set()).add(column)

    def stated(table: str, grant: Grant) -> Iterator[tuple[str, str, str]]:
        for verb, named in (("SELECT", grant.select), ("INSERT", grant.insert), ("UPDATE", grant.update)):
            for column in by_table[table] if named == (ALL,) else named:
                yield table, verb, column

    assert set(rows) == {right for table, grant in GRANTS.items() for right in stated(table, grant)}
    assert {table for (table,) in deletes} == {table for table, grant in GRANTS.items() if grant.is_delete}


async def test_the_launcher_falls_back_to_the_owner_if_the_role_cannot_be_used(
    migrated_database_url: str, role_url: str
) -> None:
    absent = role_url.replace(GATEWAY_ROLE, "nobody_made_this")

    assert await gateway_database(migrated_database_url, role_url) == (role_url, "")
    for given in ("", absent):
        url, said = await gateway_database(migrated_database_url, given)
        assert url == migrated_database_url
        assert "uses the database owner's role" in said


@pytest.fixture
def limited_owner(db: None) -> Iterator[None]:
    """The connection of a role without CREATEROLE, as managed databases provide it."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE ROLE limited_owner")
        cursor.execute("SET ROLE limited_owner")
        yield
        cursor.execute("RESET ROLE")
        transaction.set_rollback(True)


@pytest.mark.usefixtures("limited_owner")
def test_if_no_role_can_be_created_nothing_changes_and_one_sentence_says_so(settings: Settings) -> None:
    settings.GATEWAY_DATABASE = DatabaseAddress("some_gateway", "a password", "", "", "x", {})

    outcome = gateway_role_grant()

    assert not outcome.is_granted
    assert "the gateway's role 'some_gateway' could not be granted: permission denied" in outcome.sentence


@pytest.mark.django_db
def test_a_role_with_a_password_is_created_once_and_gets_the_newest_password(settings: Settings) -> None:
    settings.GATEWAY_DATABASE = DatabaseAddress("some_gateway", "first", "", "", "x", {})
    verifiers = []
    for password in ("first", "second"):
        settings.GATEWAY_DATABASE = DatabaseAddress("some_gateway", password, "", "", "x", {})
        assert gateway_role_grant().is_granted
        with connection.cursor() as cursor:
            cursor.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'some_gateway'")
            verifiers.append(cursor.fetchone()[0])

    assert verifiers[0] != verifiers[1]
    assert all(verifier.startswith("SCRAM-SHA-256$") for verifier in verifiers)


def test_statements_revoke_before_they_grant() -> None:
    statements = grant_statements("a role", {"jobs_job", "django_session"})

    assert statements[1:] == [
        'REVOKE ALL ON TABLE "django_session" FROM "a role"',
        'REVOKE ALL ON TABLE "jobs_job" FROM "a role"',
        'GRANT SELECT ON TABLE "jobs_job" TO "a role"',
    ]
