"""`pools`: list pools of machines; operators grant them to projects and revoke grants."""

import click

from seamlessflow.cli.connection import connect

_reason = click.option("--reason", default="", help="Reason, kept in the audit trail.")


@click.group()
def pools() -> None:
    """List pools of machines; grant them to projects."""


@pools.command("list")
def pools_list() -> None:
    """List pools with their machines and the projects that may use them."""
    with connect() as client:
        rows = client.pool_list()
    for pool in rows:
        who = "every project" if pool["is_open"] else ", ".join(pool["projects"]) or "no project"
        num = pool["num_machines"]
        click.echo(f"{pool['name']:<20} {num:>4} {'machine ' if num == 1 else 'machines'}  open to {who}")


@pools.command("grant")
@click.argument("pool")
@click.argument("project")
@_reason
def pools_grant(pool: str, project: str, reason: str) -> None:
    """Let the jobs of PROJECT use the machines of POOL. For operators."""
    with connect() as client:
        client.pool_edit(pool, project, is_granted=True, reason=reason)
    click.echo(f"{project} may use the pool {pool}")


@pools.command("revoke")
@click.argument("pool")
@click.argument("project")
@_reason
def pools_revoke(pool: str, project: str, reason: str) -> None:
    """End the grant of POOL to PROJECT; what runs there for it is drained. For operators."""
    with connect() as client:
        client.pool_edit(pool, project, is_granted=False, reason=reason)
    click.echo(f"{project} has no grant of the pool {pool}")
