"""Grant the gateway's role (GATEWAY_DATABASE_URL) its rights again, as `migrate` does."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from seamlessflow.control_plane.common.database.gateway_role import gateway_role_grant


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        outcome = gateway_role_grant()
        if not outcome.is_granted:
            raise CommandError(outcome.sentence)
        self.stdout.write(outcome.sentence)
