"""Checks API tokens at the gateway, by the same table of roles and scopes as the REST API.

`token_projects` takes a token and returns the projects in which its bearer may work with external sessions. It records
when the token was used, at most once per USE_NOTED_S.
"""

import hashlib
from http import HTTPStatus
from uuid import UUID

from seamlessflow.core.access.operations import Operation, Scope, roles_of, scope_refusal
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.store.connection import Connection

# The column is only for people to read, so it is not worth a write per request.
USE_NOTED_S = 60
_ROLES = [role.value for role in roles_of(Operation.SESSION_OPEN)]
_LIVE_TOKEN = """
    SELECT t.id, t.scopes, t.project_id, u.id, u.is_superuser,
           t.last_used_at IS NULL OR t.last_used_at < now() - make_interval(secs => %s)
    FROM accounts_token t JOIN accounts_user u ON u.id = t.user_id
    WHERE t.digest = %s AND t.kind = 'api' AND t.revoked_at IS NULL
      AND (t.expires_at IS NULL OR t.expires_at > now()) AND u.is_active
"""
_PROJECTS = """
    SELECT p.id FROM accounts_project p
    WHERE (%(project)s::uuid IS NULL OR p.id = %(project)s)
      AND (%(is_superuser)s OR EXISTS (
          SELECT 1 FROM accounts_membership m
          WHERE m.project_id = p.id AND m.user_id = %(user)s AND m.role = ANY(%(roles)s)))
"""


async def token_projects(connection: Connection, secret: str) -> frozenset[UUID]:
    """Return the projects in which this API token may open, reward and close external sessions.

    Raises ApiError: 401 for an invalid token, 403 for one without the scope or whose user lacks the role.
    """
    digest = hashlib.sha256(secret.encode()).hexdigest()
    cursor = await connection.execute(_LIVE_TOKEN, [USE_NOTED_S, digest])
    row = await cursor.fetchone()
    if row is None:
        raise ApiError(
            HTTPStatus.UNAUTHORIZED,
            "The API token is unknown, revoked or expired.",
            code="invalid_api_key",
        )
    token_id, scopes, project_id, user_id, is_superuser, is_note_due = row
    if is_note_due:
        await _use_note(connection, token_id)
    known = {Scope(scope) for scope in scopes if scope in set(Scope)}
    if refusal := scope_refusal(Operation.SESSION_OPEN, known):
        raise _forbidden(refusal)
    parameters = {"project": project_id, "user": user_id, "is_superuser": is_superuser, "roles": _ROLES}
    cursor = await connection.execute(_PROJECTS, parameters)
    projects = frozenset(project for (project,) in await cursor.fetchall())
    if not projects:
        raise _forbidden(
            f"the token's user may not {Operation.SESSION_OPEN}: this needs one of the roles {', '.join(_ROLES)}"
        )
    return projects


def _forbidden(reason: str) -> ApiError:
    return ApiError(
        HTTPStatus.FORBIDDEN, f"{reason[0].upper()}{reason[1:]}.", code="insufficient_permissions"
    )


async def _use_note(connection: Connection, token_id: UUID) -> None:
    """Record the use of a token; of several requests at the same time only one writes."""
    await connection.execute(
        """UPDATE accounts_token SET last_used_at = now()
           WHERE id = %s AND (last_used_at IS NULL OR last_used_at < now() - make_interval(secs => %s))""",
        [token_id, USE_NOTED_S],
    )
