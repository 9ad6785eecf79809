"""Makes monthly partitions of `trajectory_node` before they are needed, and drops those whose sessions are all deleted.

Invariant: a month that already has rows in the default partition gets no partition of its own; its rows stay there.
"""

import logging
from datetime import date

from django.db import OperationalError, connection, transaction

LOCK_WAIT = "2s"
_log = logging.getLogger(__name__)
# Whether any session of the month must be kept.
_IS_KEPT = """
    SELECT EXISTS (
        SELECT FROM trajectory_session s JOIN jobs_job j ON j.id = s.job_id
        WHERE s.month = %s AND j.deleted_at IS NULL AND j.trajectories_deleted_at IS NULL)
"""


def node_partitions_ensure(*, today: date) -> list[str]:
    """Make the partitions of this month and the next; return the names of the new ones."""
    if not _is_migrated():
        return []
    this_month = today.replace(day=1)
    return [name for month in (this_month, _next_month(this_month)) if (name := _ensure(month))]


def node_partitions_drop(*, today: date) -> list[str]:
    """Drop the partitions of months in which no session is kept. Returns their names.

    A month is dropped once every session opened in it belongs to a job that is deleted or whose trajectories are. The
    current and the previous month stay, because their sessions may still be open. Gateways wait for the lock.
    If it is not free within `LOCK_WAIT`, the next run tries again, and meanwhile rows are deleted in batches.
    """
    past = [name for name in _month_partitions() if name < f"trajectory_node_{_month_before(today):%Y_%m}"]
    return [name for name in past if _drop(name)]


def _month_partitions() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
            "WHERE i.inhparent = 'trajectory_node'::regclass AND c.relname ~ '^trajectory_node_[0-9]{4}_[0-9]{2}$' "
            "ORDER BY 1"
        )
        return [name for (name,) in cursor.fetchall()]


def _drop(name: str) -> bool:
    month = date(int(name[-7:-3]), int(name[-2:]), 1)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
            cursor.execute(_IS_KEPT, [month])
            if cursor.fetchone() == (True,):
                return False
            cursor.execute(f"ALTER TABLE trajectory_node DETACH PARTITION {name}")
            cursor.execute(f"DROP TABLE {name}")
    except OperationalError as error:  # the lock was not free in time
        _log.info("%s is dropped later: %s", name, " ".join(str(error).split()))
        return False
    return True


def _month_before(day: date) -> date:
    return date(day.year - (day.month == 1), (day.month - 2) % 12 + 1, 1)


def _is_migrated() -> bool:
    """Return whether the table exists; it does not after migrating back to zero."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('trajectory_node') IS NOT NULL")
        return bool(cursor.fetchone() == (True,))


def _next_month(month: date) -> date:
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


@transaction.atomic
def _ensure(month: date) -> str | None:
    name = f"trajectory_node_{month:%Y_%m}"
    with connection.cursor() as cursor:
        # Two processes may run this at once: one makes the partition, the other finds it.
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
