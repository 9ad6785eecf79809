"""Restore a back-up into an empty database and an empty artifact store. Nothing else may run."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from seamlessflow.control_plane.storage.services.backups.programs import ProgramFailed
from seamlessflow.control_plane.storage.services.backups.restoring import RestoreRefused, restore
from seamlessflow.core.backup.manifest import DamagedBackup


class Command(BaseCommand):
    help = __doc__
    requires_system_checks: list[str] = []  # checks may read tables

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="Folder of a complete back-up.")

    def handle(self, *args: Any, folder: Path, **options: Any) -> None:
        try:
            manifest = restore(folder.absolute(), say=lambda line: self.stderr.write(line, ending="\n"))
        except (DamagedBackup, RestoreRefused, ProgramFailed, OSError) as error:
            raise CommandError(f"nothing was restored: {error}") from error
        made = manifest.made_at.isoformat(timespec="seconds")
        self.stdout.write(f"restored the back-up of {made}: {len(manifest.files)} files")
