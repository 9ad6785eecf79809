"""Create the user `admin` and the project `default` if there are no users and projects. Prints nothing."""

from typing import Any

from django.core.management.base import BaseCommand

from seamlessflow.control_plane.accounts.services.people import owner_ensure


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        owner_ensure()
