"""Django's `migrate`, which first refuses a database that this version does not fit, in one sentence.

It must look before Django does: Django compares the record of migrations with ours before its signal `pre_migrate`, and
shows a traceback if they differ.
"""

from typing import Any

from django.core.management import CommandError
from django.core.management.commands import migrate
from django.db.migrations.exceptions import InconsistentMigrationHistory

from seamlessflow.control_plane.common.database.other_database import other_database_refuse


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        other_database_refuse(using=options["database"])
        try:
            super().handle(*args, **options)
        except InconsistentMigrationHistory as error:
            raise CommandError(
                f"This database has migrations that do not fit together, so it is left unchanged: {error} "
                "Use an empty database, or restore a back-up."
            ) from error
