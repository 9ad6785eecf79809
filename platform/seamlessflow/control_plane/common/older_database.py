"""Refuses to migrate a database of the time before the first release, whose migrations were squashed.

Enters: Django's `pre_migrate`, once a command. Invariant: such a database is left as it is.
"""

from typing import Any

from django.core.management import CommandError
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

# Every database of that time has it, and none of a release.
OLD_MIGRATION = ("jobs", "0001_initial")


def older_database_refuse(*, using: str, **_kwargs: Any) -> None:
    """Raises CommandError."""
    if OLD_MIGRATION in MigrationRecorder(connections[using]).applied_migrations():
        raise CommandError(
            "This database was made before the first release and cannot be migrated: use an empty one "
            "(`seamlessflow jobs export` of the version that made it saves weights)."
        )
