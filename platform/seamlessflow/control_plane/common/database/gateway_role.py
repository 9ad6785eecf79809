"""Makes the gateway's database role after each migration and grants its rights.

Takes user and password from the settings' GATEWAY_DATABASE_URL. Writes the role with exactly the rights of
`core.access.gateway_grants`. If the database does not let us make a role, this changes nothing and logs one sentence;
the gateway then connects to whatever address it is given, which is the owner's by default.
"""

import logging
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from psycopg import errors, sql

from seamlessflow.control_plane.common.database.address import DatabaseAddress
from seamlessflow.core.access.gateway_grants import grant_statements

_log = logging.getLogger(__name__)
_TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND pg_has_role(relowner, 'USAGE')
"""


@dataclass(frozen=True, slots=True)
class RoleOutcome:
    is_granted: bool
    sentence: str


def gateway_role_grant(**_: Any) -> RoleOutcome:
    """Make the role and grant its rights. Django's signal after migrations calls this as well."""
    address: DatabaseAddress | None = settings.GATEWAY_DATABASE
    if address is None:
        return RoleOutcome(
            False, "GATEWAY_DATABASE_URL is not set: the gateway connects with the owner's role"
        )
    try:
        with transaction.atomic():
            outcome = _grant(address)
    except DatabaseError as error:
        reason = str(error).partition("\n")[0]
        outcome = RoleOutcome(False, f"the gateway's role {address.user!r} could not be granted: {reason}")
    _log.log(logging.INFO if outcome.is_granted else logging.WARNING, "%s", outcome.sentence)
    return outcome


def _grant(address: DatabaseAddress) -> RoleOutcome:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user = %s", [address.user])
        if cursor.fetchone() == (True,):
            return RoleOutcome(False, f"the gateway connects with the owner's role {address.user!r}")
    _role_make(address)
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        for statement in grant_statements(address.user, {name for (name,) in cursor.fetchall()}):
            cursor.execute(statement)
    return RoleOutcome(True, f"the gateway's role {address.user!r} has its grants")


def _role_make(address: DatabaseAddress) -> None:
    """Make the role, or set the password of the existing one; a role that we may not change stays as it is."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [address.user])
        is_there = cursor.fetchone() is not None
        statement = sql.SQL("{verb} ROLE {role} LOGIN{password}").format(
            verb=sql.SQL("ALTER" if is_there else "CREATE"),
            role=sql.Identifier(address.user),
            password=_password(address),
        )
        try:
            with transaction.atomic():
                cursor.execute(statement)
        except DatabaseError as error:
            if not (is_there and isinstance(error.__cause__, errors.InsufficientPrivilege)):
                raise


def _password(address: DatabaseAddress) -> sql.Composable:
    """Return the password clause with a verifier, so that no server log shows the password; "" without a password."""
    if not address.password:
        return sql.SQL("")
    verifier = connection.connection.pgconn.encrypt_password(
        address.password.encode(), address.user.encode(), b"scram-sha-256"
    )
    return sql.SQL(" PASSWORD {}").format(sql.Literal(verifier.decode()))
