"""Print the secret of a new API token for a project or, with --installation, for the installation."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from seamlessflow.control_plane.accounts.models import Project, User
from seamlessflow.control_plane.accounts.services.people import DEFAULT_PROJECT, OWNER_NAME, api_token_create
from seamlessflow.core.access.minting import (
    DEFAULT_LIFETIME_DAYS,
    DEFAULT_SCOPES,
    MAX_LIFETIME_DAYS,
    Minter,
    MintingRefused,
    expiry_granted,
    scopes_granted,
)
from seamlessflow.core.access.operations import Scope


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        of = parser.add_mutually_exclusive_group()
        of.add_argument("--project", default=DEFAULT_PROJECT)
        of.add_argument(
            "--installation",
            action="store_true",
            help=(
                "Make the token valid for all projects of the user and, with the scope operate, for machines; the "
                "user must be staff."
            ),
        )
        parser.add_argument("--user", default=OWNER_NAME)
        parser.add_argument("--name", required=True)
        parser.add_argument(
            "--scopes",
            help=f"Comma-separated list of {', '.join(Scope)}. Default: {', '.join(sorted(DEFAULT_SCOPES))}.",
        )
        end = parser.add_mutually_exclusive_group()
        end.add_argument(
            "--expires-in-days",
            type=int,
            help=f"Lifetime in days, 1 to {MAX_LIFETIME_DAYS}. Default: {DEFAULT_LIFETIME_DAYS}.",
        )
        end.add_argument(
            ("--never-expires"),
            action="store_true",
            help="Make a token that works until it is revoked.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"--user: there is no user {options['user']!r}")
        project = None if options["installation"] else Project.objects.filter(slug=options["project"]).first()
        if project is None and not options["installation"]:
            raise CommandError(f"--project: there is no project {options['project']!r}")
        minter = Minter(is_operator=user.is_staff or user.is_superuser, is_project_token=False)
        try:
            scopes = scopes_granted(
                _scopes(options["scopes"]), minter, is_installation=options["installation"]
            )
            expires_at = expiry_granted(options["expires_in_days"], minter, now=timezone.now())
        except MintingRefused as error:
            raise CommandError(f"--{error.field.replace('_', '-')}: {error.detail}") from error
        _, secret = api_token_create(
            user=user,
            project=project,
            name=options["name"],
            author="system",
            scopes=scopes,
            expires_at=None if options["never_expires"] else expires_at,
        )
        self.stdout.write(secret)


def _scopes(text: str | None) -> set[Scope] | None:
    if text is None:
        return None
    names = {name.strip() for name in text.split(",") if name.strip()}
    if unknown := sorted(names - set(Scope)):
        raise CommandError(f"--scopes: {unknown[0]!r} is not a scope; accepted: {', '.join(Scope)}")
    return {Scope(name) for name in names}
