"""Refuses to migrate a database from before the first release, because its migrations were squashed.

Django's `pre_migrate` calls it once a command. Invariant: such a database stays as it is.
"""

from typing import Any

from django.core.management import CommandError
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

# Only databases from before the first release have this migration.
OLD_MIGRATION = ("jobs", "0001_initial")


def older_database_refuse(*, using: str, **_kwargs: Any) -> None:
    """Raise CommandError if the database is that old."""
    if OLD_MIGRATION in MigrationRecorder(connections[using]).applied_migrations():
        raise CommandError(
            "This database was made before the first release and cannot be migrated. Use an empty database; "
            "to keep weights, run `seamlessflow jobs export` with the version that made it."
        )
