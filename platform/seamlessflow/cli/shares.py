"""`shares`: the entitlement of each project and its machines; operators edit weights, quotas and priority ceilings."""

import json

import click

from seamlessflow.cli.connection import connect
from seamlessflow.cli.errors import CliError
from seamlessflow.client.errors import Json
from seamlessflow.core.types.limits import Priority, Weight, limits_of

NO_LIMIT = "none"


class Quota(click.ParamType[int | str]):
    """A number, or `none` for no limit."""

    name = "number"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == NO_LIMIT:
            return NO_LIMIT
        if not value.isdecimal() or int(value) < 1:
            name = param.opts[0] if param else "--quota"
            raise CliError(
                f"{name}: {value!r} is not accepted; accepted: a number from 1 on, or none", exit_code=2
            )
        return int(value)


@click.group()
def shares() -> None:
    """List shares of projects; edit weights, quotas and priority ceilings."""


@shares.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output.")
def shares_list(as_json: bool) -> None:
    """List projects with weight, quota, entitlement and their machines now."""
    with connect() as client:
        rows = client.share_list()
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    for row in rows:
        click.echo(_line(row))


@shares.command("set")
@click.argument("project")
@click.option(
    "--weight",
    type=click.FloatRange(*limits_of(Weight).span),
    help="Its weight in proportion to other projects'.",
)
@click.option(
    "--quota", "machine_quota", type=Quota(), help="The most machines it may have; `none` for no limit."
)
@click.option(
    "--priority-ceiling",
    type=click.IntRange(*limits_of(Priority).span),
    help="Up to which its jobs' priorities count against other projects.",
)
@click.option(
    "--queued-jobs",
    "queued_jobs_quota",
    type=Quota(),
    help="The most jobs it may have in the queue; `none` for the installation's.",
)
@click.option("--reason", required=True, help="Reason, kept in the audit trail.")
def shares_set(project: str, reason: str, **given: float | str | None) -> None:
    """Change what PROJECT takes from other projects. For operators."""
    wanted = {name: value for name, value in given.items() if value is not None}
    changes = {name: None if value == NO_LIMIT else value for name, value in wanted.items()}
    if not changes:
        raise CliError("give --weight, --quota, --priority-ceiling or --queued-jobs", exit_code=2)
    with connect() as client:
        click.echo(_line(client.share_edit(project, changes=changes, reason=reason)))


def _line(row: Json) -> str:
    quota = "no quota" if row["machine_quota"] is None else f"quota {row['machine_quota']}"
    line = (
        f"{row['project']:<20} weight {row['weight']:<6g} {quota:<12} entitled to {row['entitled']:<6.1f} "
        f"holds {row['num_held'] - row['num_agent_slots']} machines and {row['num_agent_slots']} agent slots  "
        f"last hour {row['machine_s'] / 3600:.2f} machine-hours"
    )
    if row["priority_ceiling"]:
        line += f"  priorities count up to {row['priority_ceiling']}"
    return f"{line}  short of machines" if row["is_short"] else line
