"""`tokens`: list, create and revoke API tokens. A secret is printed once, alone on standard output,
for scripts."""

import json

import click

from seamlessflow.cli.connection import connect
from seamlessflow.client.errors import Json
from seamlessflow.core.access.minting import DEFAULT_LIFETIME_DAYS, DEFAULT_SCOPES, MAX_LIFETIME_DAYS
from seamlessflow.core.access.operations import Scope

_json = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output."
)


def _scopes(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
    """Parse a comma-separated list of scopes. Raises BadParameter."""
    if value is None:
        return None
    scopes = [scope.strip() for scope in value.split(",") if scope.strip()]
    for scope in scopes:
        if scope not in tuple(Scope):
            raise click.BadParameter(
                f"{scope!r} is not a scope; accepted: {', '.join(Scope)}", ctx=ctx, param=param
            )
    return scopes


@click.group()
def tokens() -> None:
    """List, create and revoke API tokens."""


@tokens.command("list")
@_json
def tokens_list(as_json: bool) -> None:
    """List the tokens that you may see, with scopes, expiry and last use."""
    with connect() as client:
        rows = client.token_list()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(_line(row))


@tokens.command("create")
@click.argument("name")
@click.option(
    "--scopes",
    metavar="SCOPE,…",
    callback=_scopes,
    help=f"Any of {', '.join(Scope)}. Default: {', '.join(sorted(DEFAULT_SCOPES))}.",
)
@click.option("--project", metavar="SLUG", help="Project. May be left out if you are in one project only.")
@click.option(
    "--installation",
    is_flag=True,
    help="Make the token valid for all your projects and for machines. For operators only.",
)
@click.option(
    "--expires-in-days",
    type=click.IntRange(1, MAX_LIFETIME_DAYS),
    help=f"Lifetime in days. Default: {DEFAULT_LIFETIME_DAYS}.",
)
@_json
def tokens_create(
    name: str,
    scopes: list[str] | None,
    project: str | None,
    installation: bool,
    expires_in_days: int | None,
    as_json: bool,
) -> None:
    """Create a token and print its secret, which is never shown again."""
    with connect() as client:
        made = client.token_create(
            name,
            project=project,
            scopes=scopes,
            expires_in_days=expires_in_days,
            is_installation=installation,
        )
    if as_json:
        click.echo(json.dumps(made, indent=2))
        return
    click.echo(made["secret"])
    click.echo(_line(made), err=True)


@tokens.command("revoke")
@click.argument("token_id", metavar="TOKEN")
def tokens_revoke(token_id: str) -> None:
    """Revoke a token; requests that use it are refused from then on."""
    with connect() as client:
        client.token_revoke(token_id)
    click.echo(f"{token_id} is revoked.")


def _line(token: Json) -> str:
    owner = token["project"] or "installation"
    state = "revoked" if token["revoked_at"] else f"expires {token['expires_at'] or 'never'}"
    used = f"last used {token['last_used_at']}" if token["last_used_at"] else "never used"
    return f"{token['id']}  {token['name']:<24} {owner:<16} {','.join(token['scopes']):<28} {state}, {used}"
