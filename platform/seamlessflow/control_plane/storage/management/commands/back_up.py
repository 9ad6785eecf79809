"""Back up the database and the artifact store into a folder, while jobs run."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from seamlessflow.control_plane.storage.services.backups.programs import ProgramFailed
from seamlessflow.control_plane.storage.services.backups.taking import BackupRefused, back_up


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, help="Empty or new folder, outside the artifact store.")

    def handle(self, *args: Any, folder: Path, **options: Any) -> None:
        try:
            manifest = back_up(folder.absolute(), say=lambda line: self.stderr.write(line, ending="\n"))
        except (BackupRefused, ProgramFailed, OSError) as error:
            raise CommandError(f"no back-up was made: {error}") from error
        for missing in manifest.missing:
            of_job = f" of the job {missing.job_name!r}" if missing.job_name else ""
            self.stderr.write(
                f"not in the back-up, because it is missing: {missing.what}{of_job}", ending="\n"
            )
        self.stdout.write(f"{folder}: {len(manifest.files)} files, {manifest.num_bytes / 1e9:.2f} GB in all")
