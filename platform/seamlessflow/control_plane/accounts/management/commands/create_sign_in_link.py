"""Print a link that signs a browser in. It works once, within a day."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from seamlessflow.control_plane.accounts.models import User
from seamlessflow.control_plane.accounts.services.people import OWNER_NAME, sign_in_token_create


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", default=OWNER_NAME)

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"--user: there is no user {options['user']!r}")
        _, secret = sign_in_token_create(user=user, author="system")
        self.stdout.write(f"{settings.WEB_URL}/signin/{secret}")
