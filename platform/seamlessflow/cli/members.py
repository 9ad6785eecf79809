"""`members`: list, add, change and remove the members of a project. Owners edit; every member may
list."""

import json

import click

from seamlessflow.cli.connection import connect
from seamlessflow.cli.errors import CliError
from seamlessflow.client import Client
from seamlessflow.client.errors import Json
from seamlessflow.core.access.operations import ProjectRole
from seamlessflow.core.access.projects import ProjectNotChosen, chosen_project

_project = click.option(
    "--project", metavar="SLUG", help="Project. May be left out if you are in one project only."
)
_json = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output."
)
_role = click.Choice([role.value for role in ProjectRole])


@click.group()
def members() -> None:
    """List, add, change and remove the members of a project."""


@members.command("list")
@_project
@_json
def members_list(project: str | None, as_json: bool) -> None:
    """List the members of the project, with role and last sign-in."""
    with connect() as client:
        rows = client.member_list(project or _only_project(client))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(_line(row))


@members.command("add")
@click.argument("username")
@click.option("--role", type=_role, default=ProjectRole.MEMBER.value, show_default=True)
@click.option(
    "--invite",
    is_flag=True,
    help="Create the account if it does not exist, and print its one-time sign-in link.",
)
@_project
def members_add(username: str, role: str, invite: bool, project: str | None) -> None:
    """Add a person to the project."""
    with connect() as client:
        added = client.member_add(project or _only_project(client), username, role=role, is_invited=invite)
    click.echo(_line(added), err=True)
    if added["sign_in_link"]:
        click.echo(added["sign_in_link"])


@members.command("set")
@click.argument("username")
@click.option("--role", type=_role, required=True)
@_project
def members_set(username: str, role: str, project: str | None) -> None:
    """Change the role of a member of the project."""
    with connect() as client:
        click.echo(_line(client.member_change(project or _only_project(client), username, role=role)))


@members.command("remove")
@click.argument("username")
@_project
def members_remove(username: str, project: str | None) -> None:
    """Remove a member; their tokens for the project stop working at once."""
    with connect() as client:
        client.member_remove(project or _only_project(client), username)
    click.echo(f"{username} is no longer in the project.")


def _only_project(client: Client) -> str:
    """Return the caller's only project. Raises CliError unless there is exactly one."""
    try:
        return chosen_project(None, [project["slug"] for project in client.me()["projects"]])
    except ProjectNotChosen as error:
        raise CliError(f"--project {error}", exit_code=2) from error


def _line(member: Json) -> str:
    seen = member["last_sign_in_at"]
    state = f"last signed in {seen}" if seen else "never signed in"
    return (
        f"{member['username']:<32} {member['role']:<8} {state if member['is_active'] else 'account closed'}"
    )
