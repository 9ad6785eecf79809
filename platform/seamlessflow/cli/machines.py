"""`machines`: list and edit desired state. Every edit carries a reason."""

import click

from seamlessflow.cli.connection import connect


@click.group()
def machines() -> None:
    """List, retag, cordon and drain machines."""


@machines.command("list")
def machines_list() -> None:
    """Machines with tags, health and what they do."""
    with connect() as client:
        rows = client.machine_list()
    if not rows:
        click.echo("no machines yet; start one with `seamlessflow worker --name NAME --tags rollout,train`")
    for machine in rows:
        health = "healthy" if machine["is_healthy"] else "down"
        marks = " cordoned" if machine["is_cordoned"] else ""
        click.echo(f"{machine['name']:<16} {health:<8} {','.join(machine['tags']) or '-'}{marks}")


@machines.command("tag")
@click.argument("name")
@click.argument("tags")
@click.option("--reason", required=True, help="Kept in the audit trail.")
def machines_tag(name: str, tags: str, reason: str) -> None:
    """Give machine NAME exactly the comma-separated TAGS."""
    _edit(name, {"tags": [tag for tag in tags.split(",") if tag]}, reason)


@machines.command("cordon")
@click.argument("name")
@click.option("--off", is_flag=True, help="Take work again.")
@click.option("--reason", required=True, help="Kept in the audit trail.")
def machines_cordon(name: str, off: bool, reason: str) -> None:
    """Give machine NAME no new phases."""
    _edit(name, {"is_cordoned": not off}, reason)


@machines.command("drain")
@click.argument("name")
@click.option("--off", is_flag=True, help="Take work again.")
@click.option("--reason", required=True, help="Kept in the audit trail.")
def machines_drain(name: str, off: bool, reason: str) -> None:
    """Hand over what runs on machine NAME and give it nothing new."""
    _edit(name, {"is_draining": not off}, reason)


def _edit(name: str, changes: dict[str, object], reason: str) -> None:
    with connect() as client:
        machine = client.machine_edit(name, changes=changes, reason=reason)
    click.echo(f"{machine['name']} {','.join(machine['tags']) or '-'}")
