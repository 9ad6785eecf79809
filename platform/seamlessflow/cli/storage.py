"""`storage`: show the stored data, edit the retention policy, and delete manually, always after a
preview."""

import json
from collections.abc import Mapping
from typing import Any

import click

from seamlessflow.cli.connection import connect
from seamlessflow.cli.errors import CliError
from seamlessflow.client import Client

KINDS = ("job", "upload", "version", "checkpoint", "trajectories", "logs")
UNITS = ("B", "kB", "MB", "GB", "TB")
FOR_EVER = "forever"

_project = click.option(
    "--project", metavar="SLUG", help="Project. May be left out if you are in one project only."
)
_json = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output."
)


@click.group()
def storage() -> None:
    """Show the stored data, edit the retention policy, and delete."""


@storage.command("show")
@_json
def storage_show(as_json: bool) -> None:
    """Show disk use by project and kind, as last measured by the background process."""
    with connect() as client:
        rows = client.storage()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['project']:<24} {bytes_shown(row['num_bytes']):>10}")
        for kind, number in row["by_kind"].items():
            click.echo(f"  {kind:<22} {bytes_shown(number):>10}")


@storage.command("jobs")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
def storage_jobs(limit: int) -> None:
    """List the jobs that use the most disk space."""
    with connect() as client:
        for job in client.storage_jobs(limit=limit):
            click.echo(f"{job['id']}  {bytes_shown(job['num_bytes']):>10}  {job['state']:<10} {job['name']}")


@storage.command("policy")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="NAME=DAYS",
    help="Set a setting: NAME=<whole number> or NAME=forever; may be repeated.",
)
@click.option(
    "--reset", multiple=True, metavar="NAME", help="Reset a setting to its inherited value; may be repeated."
)
@click.option("--installation", is_flag=True, help="Show or edit the defaults for all projects.")
@_project
@_json
def storage_policy(
    changes: tuple[str, ...], reset: tuple[str, ...], installation: bool, project: str | None, as_json: bool
) -> None:
    """Show the retention policy; edit it with --set or --reset."""
    where = {"installation": "true"} if installation else {"project": project} if project else {}
    values = dict(_setting(change) for change in changes)
    with connect() as client:
        policy = client.storage_policy(where, settings=values, reset=list(reset))
    if as_json:
        click.echo(json.dumps(policy, indent=2))
        return
    for row in policy["settings"]:
        value = FOR_EVER if row["value"] is None else f"{row['value']} {row['unit']}"
        mark = "set here" if row["is_own"] else ""
        click.echo(f"{row['name']:<24} {value:<14} {mark:<9} {row['help']}".rstrip())


@storage.command("plan")
@_project
@_json
def storage_plan(project: str | None, as_json: bool) -> None:
    """Show which data the policy would delete now, without changing anything."""
    with connect() as client:
        plan = client.storage_plan(project)
    _show(plan, as_json=as_json)


@storage.command("delete")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option(
    "--number", type=click.IntRange(min=0), help="Number of the version, or of the checkpoint's batch."
)
@click.option("--reason", default="", help="Reason, kept in the audit trail.")
@click.option("--dry-run", is_flag=True, help="Only show what would be freed and what cannot be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@_project
@_json
def storage_delete(
    kind: str, ids: tuple[str, ...], number: int | None, project: str | None, as_json: bool, **options: Any
) -> None:
    """Delete a job (ID: job_…) with all its data, some data of a job, or an upload (ID: art_…)."""
    items = [{"kind": kind, "id": one} | ({} if number is None else {"number": number}) for one in ids]
    with connect() as client:
        plan = client.storage_delete(items, dry_run=True, project=project)
        _show(plan, as_json=as_json)
        if options["dry_run"]:
            return
        if refused := [item for item in plan["items"] if item["refusal"]]:
            raise CliError(f"nothing was deleted: {refused[0]['refusal']}", exit_code=2)
        if not options["yes"] and not click.confirm("Delete this? It cannot be undone", err=True):
            raise CliError("nothing was deleted", exit_code=1)
        _delete(client, items, reason=options["reason"], project=project)


def bytes_shown(number: int) -> str:
    """Render a size for people: `1500` gives `1.5 kB`."""
    value, unit = float(number), UNITS[0]
    for unit in UNITS:
        if value < 1000 or unit == UNITS[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _delete(client: Client, items: list[dict[str, Any]], *, reason: str, project: str | None) -> None:
    done = client.storage_delete(items, reason=reason, project=project)
    click.echo(
        f"deleted; {bytes_shown(done['num_bytes'])} will be freed as the background process removes the data",
        err=True,
    )


def _show(plan: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(plan, indent=2))
        return
    for item in plan["items"]:
        what = f"{item['kind']} {item['number']}" if item["number"] is not None else item["kind"]
        why = f"must stay: {item['refusal']}" if item["refusal"] else item["reason"]
        line = f"{what:<16} {item['id']}  {bytes_shown(item['num_bytes']):>10}  {item['name']:<20} {why}"
        click.echo(line.rstrip())
    click.echo(f"{bytes_shown(plan['num_bytes'])} in total")


def _setting(change: str) -> tuple[str, int | None]:
    name, separator, value = change.partition("=")
    if value == FOR_EVER:
        return name, None
    if not separator or not (value.isascii() and value.isdecimal()):
        raise CliError(f"--set {change}: accepted: NAME=<whole number> or NAME={FOR_EVER}", exit_code=2)
    return name, int(value)
