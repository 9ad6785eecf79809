"""Monthly partitions of `trajectory_node`, made before they are needed.

Invariant: a month of which rows already lie in the default partition gets none of its own: they stay there.
"""

from datetime import date

from django.db import connection, transaction


def node_partitions_ensure(*, today: date) -> list[str]:
    """Make those of this month and the next; return the names of the new ones."""
    if not _is_migrated():
        return []
    this_month = today.replace(day=1)
    return [name for month in (this_month, _next_month(this_month)) if (name := _ensure(month))]


def _is_migrated() -> bool:
    """False after migrating back to nothing."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('trajectory_node') IS NOT NULL")
        return bool(cursor.fetchone() == (True,))


def _next_month(month: date) -> date:
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


@transaction.atomic
def _ensure(month: date) -> str | None:
    name = f"trajectory_node_{month:%Y_%m}"
    with connection.cursor() as cursor:
        # Two processes may come at once: one makes it, the other finds it.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('trajectory_node partitions'))")
        cursor.execute("SELECT to_regclass(%s)", [name])
        if cursor.fetchone() != (None,):
            return None
        cursor.execute("SELECT EXISTS (SELECT 1 FROM trajectory_node_default WHERE month = %s)", [month])
        if cursor.fetchone() == (True,):
            return None
        cursor.execute(
            f"CREATE TABLE {name} PARTITION OF trajectory_node"
            f" FOR VALUES FROM ('{month.isoformat()}') TO ('{_next_month(month).isoformat()}')"
        )
    return name
