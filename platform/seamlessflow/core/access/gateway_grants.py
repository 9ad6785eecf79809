"""The rights of the gateway's role in the database: their table, and the SQL that grants exactly those.

`grant_statements` takes a role and the existing tables, and returns statements to run in one transaction. Invariant:
all rights that the role had on these tables are revoked first, so it has none but those in the table below. PostgreSQL
refuses the rest ("permission denied for table …"), so a new statement of `data_plane.store` may need a row here.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

GATEWAY_ROLE = "seamlessflow_gateway"
ALL = "*"  # every column
Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights on one table: columns by verb. An empty tuple grants nothing. DELETE has no columns."""

    select: Columns = ()
    insert: Columns = ()
    update: Columns = ()
    is_delete: bool = False


_READ = Grant(select=(ALL,))
_APPEND = Grant(select=(ALL,), insert=(ALL,))
_KEEP = Grant(select=(ALL,), insert=(ALL,), update=(ALL,))
GRANTS: Mapping[str, Grant] = {
    # Of people, only what decides whether a token may open a session: no name, address or password digest.
    "accounts_project": Grant(select=("id",)),
    "accounts_user": Grant(select=("id", "is_active", "is_superuser")),
    "accounts_membership": Grant(select=("user_id", "project_id", "role")),
    "accounts_token": Grant(
        select=(
            *("id", "kind", "digest", "project_id", "user_id", "scopes"),
            *("expires_at", "revoked_at", "last_used_at"),
        ),
        update=("last_used_at",),
    ),
    "cluster_machine": _READ,
    "jobs_job": _READ,
    "policies_policyversion": _READ,
    "scheduling_phase": Grant(select=(ALL,), update=("num_read_again_tokens",)),
    "common_event": Grant(select=("kind", "subject_id"), insert=(ALL,)),
    "telemetry_metricpoint": _KEEP,
    "trajectory_batch": _KEEP,
    "trajectory_dataset": _READ,
    "trajectory_epoch": _APPEND,
    "trajectory_evaluation": _KEEP,
    "trajectory_gateway": Grant(select=(ALL,), insert=(ALL,), update=(ALL,), is_delete=True),
    "trajectory_group": _KEEP,
    "trajectory_lull": _KEEP,
    "trajectory_node": _APPEND,
    "trajectory_prompt": _APPEND,
    "trajectory_session": _KEEP,
    "trajectory_session_hold": _KEEP,
}


def grant_statements(role: str, tables: Collection[str]) -> list[str]:
    """Return SQL that gives `role` the rights above on those of `tables` that are listed, and no rights on the
    others."""
    quoted = quote_name(role)
    statements = [f"GRANT USAGE ON SCHEMA public TO {quoted}"]
    statements += [f"REVOKE ALL ON TABLE {quote_name(table)} FROM {quoted}" for table in sorted(tables)]
    for table, grant in GRANTS.items():
        if table in tables:
            rights = ", ".join(_rights(grant))
            statements.append(f"GRANT {rights} ON TABLE {quote_name(table)} TO {quoted}")
    return statements


def quote_name(name: str) -> str:
    """Quote a name for PostgreSQL; it may contain any characters."""
    return '"' + name.replace('"', '""') + '"'


def _rights(grant: Grant) -> list[str]:
    by_verb = {"SELECT": grant.select, "INSERT": grant.insert, "UPDATE": grant.update}
    rights = [
        verb if columns == (ALL,) else f"{verb} ({', '.join(map(quote_name, columns))})"
        for verb, columns in by_verb.items()
        if columns
    ]
    return [*rights, "DELETE"] if grant.is_delete else rights
