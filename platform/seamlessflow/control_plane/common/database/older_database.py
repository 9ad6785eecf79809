"""Refuses to migrate a database from before the first release, because its migrations were squashed.

Enters: Django's `pre_migrate`, once a command. Invariant: such a database is left as it is.
"""

from typing import Any

from django.core.management import CommandError
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

# Only databases from before the first release have it.
OLD_MIGRATION = ("jobs", "0001_initial")


def older_database_refuse(*, using: str, **_kwargs: Any) -> None:
    """Raises CommandError."""
    if OLD_MIGRATION in MigrationRecorder(connections[using]).applied_migrations():
        raise CommandError(
            "This database was made before the first release and cannot be migrated. Use an empty database; "
            "to keep weights, run `seamlessflow jobs export` with the version that made it."
        )
