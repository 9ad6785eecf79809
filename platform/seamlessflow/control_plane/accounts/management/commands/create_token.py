"""Print the secret of a new API token of a project."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from seamlessflow.control_plane.accounts.models import Project, User
from seamlessflow.control_plane.accounts.services import DEFAULT_PROJECT, OWNER_NAME, api_token_create


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--project", default=DEFAULT_PROJECT)
        parser.add_argument("--user", default=OWNER_NAME)
        parser.add_argument("--name", required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        project = Project.objects.filter(slug=options["project"]).first()
        user = User.objects.filter(username=options["user"]).first()
        if project is None:
            raise CommandError(f"--project: there is no project {options['project']!r}")
        if user is None:
            raise CommandError(f"--user: there is no user {options['user']!r}")
        _, secret = api_token_create(user=user, project=project, name=options["name"], author="system")
        self.stdout.write(secret)
