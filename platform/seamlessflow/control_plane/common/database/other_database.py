"""Refuses to migrate a database that this version does not fit: one from before the first release, whose migrations
were squashed, and one that a newer version has migrated already.

The command `migrate` calls it first. Invariant: such a database stays as it is. The planes of the previous version keep
running while a newer one is rolled out; only who starts an installation of the previous version on the newer tables is
refused.
"""

from django.apps import apps
from django.core.management import CommandError
from django.db import connections
from django.db.migrations.loader import MigrationLoader

# Only databases from before the first release have this migration.
OLD_MIGRATION = ("jobs", "0001_initial")
OWN = "seamlessflow."


def other_database_refuse(*, using: str) -> None:
    """Raise CommandError if the database is older than the first release, or newer than this version."""
    loader = MigrationLoader(connections[using])
    if OLD_MIGRATION in loader.applied_migrations:
        raise CommandError(
            "This database was made before the first release and cannot be migrated. Use an empty database (with "
            "`seamlessflow up`: another folder as SEAMLESSFLOW_HOME); to keep weights, run `seamlessflow jobs export` "
            "with the version that made it."
        )
    own = {app.label for app in apps.get_app_configs() if app.name.startswith(OWN)}
    unknown = sorted(
        f"{app}.{name}"
        for app, name in loader.applied_migrations
        if app in own and (app, name) not in loader.disk_migrations
    )
    if unknown:
        raise CommandError(
            f"This database was migrated by a newer version ({', '.join(unknown)}), so this one does not start on it; "
            "install the newer version, or restore the back-up from before the upgrade."
        )
