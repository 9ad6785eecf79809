"""Register a machine, or keep an existing one, and print only a new token for its supervisor."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from seamlessflow.control_plane.cluster.services.machines import machine_register
from seamlessflow.control_plane.common.errors import ApplicationError


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument(
            "--tags", help="Comma-separated tags. If left out, an existing machine keeps its tags."
        )
        parser.add_argument("--rotate", action="store_true", help="Revoke the machine's earlier tokens.")

    def handle(self, *args: Any, **options: Any) -> None:
        tags = options["tags"]
        try:
            _, secret = machine_register(
                name=options["name"],
                tags=None if tags is None else [tag.strip() for tag in tags.split(",") if tag.strip()],
                is_rotating=options["rotate"],
                author="system",
            )
        except ApplicationError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(secret)
