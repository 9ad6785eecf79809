"""`machines`: list and edit desired state. Every edit needs a reason and can be tried with
`--dry-run` first."""

from collections.abc import Callable, Mapping
from typing import Any, get_args

import click

from seamlessflow.cli.connection import connect
from seamlessflow.cli.errors import CliError
from seamlessflow.client import Client
from seamlessflow.core.types.desired_state import KINDS, SETTINGS, DesiredState, desired_text
from seamlessflow.core.types.limits import limits_of

Changes = Callable[[Mapping[str, Any]], dict[str, Any]]  # maps a machine to the changes to make
Command = Callable[..., None]


@click.group()
def machines() -> None:
    """List, register, retag, cordon and drain machines."""


@machines.command("list")
def machines_list() -> None:
    """List machines with generation, tags, health and current work."""
    with connect() as client:
        rows = client.machine_list()
    if not rows:
        click.echo("no machines yet; start one with `seamlessflow worker --name NAME --tags rollout,train`")
    for machine in rows:
        work = "; ".join(
            f"{phase['role']} {phase['state']} for {phase['job_name'] or 'another project'}"
            for phase in machine["phases"]
        )
        line = f"{machine['name']:<16} {machine['health']:<11} generation {machine['generation']:<4} "
        click.echo((line + f"{_desired(machine):<32} {work}").rstrip())
        if labels := machine["labels"]:
            click.echo(f"  {' '.join(labels)}")
        reported = (machine["heartbeat"] or {}).get("capabilities", {})
        for device, problem in reported.get("device_problems", {}).items():
            click.echo(f"  the device {device} is cordoned: {problem}")
        if quarantine := machine["quarantine"]:
            click.echo(f"  in quarantine until {quarantine['until_at']}: {quarantine['reason']}")


@machines.command("register")
@click.argument("name")
@click.option(
    "--tags", required=True, metavar="TAG[,TAG]", help="Permitted roles of the machine, e.g. rollout,train."
)
def machines_register(name: str, tags: str) -> None:
    """Register machine NAME and print its token, for `seamlessflow worker --token-file`; it is never shown again."""
    with connect() as client:
        click.echo(client.machine_register(name, sorted(_tags_of((tags,))))["token"])


@machines.command("events")
@click.argument("name")
@click.option("--limit", default=20, show_default=True)
def machines_events(name: str, limit: int) -> None:
    """Show who edited machine NAME, when and why; newest first."""
    with connect() as client:
        for event in client.machine_events(client.machine_get(name)["id"], limit=limit):
            click.echo(f"{event['at']}  {event['author']:<20} {_event_said(event)}  ({event['reason']})")


def _edit_options(command: Command) -> Command:
    """Add the arguments and options of all edits."""
    options = (
        click.argument("names", nargs=-1, required=True, metavar="NAME..."),
        click.option("--reason", help="Reason, kept in the audit trail; required unless --dry-run."),
        click.option(
            "--generation", type=int, help="Edit only if the machine is still at this generation (one NAME)."
        ),
        click.option("--dry-run", is_flag=True, help="Only show what would happen to each phase and job."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@machines.command("tag")
@_edit_options
@click.option("--add", multiple=True, metavar="TAG[,TAG]", help="Add these tags.")
@click.option("--remove", multiple=True, metavar="TAG[,TAG]", help="Remove these tags.")
@click.option("--set", "exactly", metavar="TAG[,TAG]", help='Set exactly these tags; "" for none.')
def machines_tag(
    names: tuple[str, ...], add: tuple[str, ...], remove: tuple[str, ...], exactly: str | None, **options: Any
) -> None:
    """Change the tags of machines; work that no longer fits is handed over to others."""
    added, removed = _tags_of(add), _tags_of(remove)
    if (exactly is None) == (not added and not removed):
        raise CliError("use either --set, or --add and --remove", exit_code=2)
    if both := added & removed:
        raise CliError(f"{', '.join(sorted(both))}: given to both --add and --remove", exit_code=2)

    def changes(machine: Mapping[str, Any]) -> dict[str, Any]:
        tags = (set(machine["tags"]) | added) - removed if exactly is None else _tags_of((exactly,))
        return {"tags": sorted(tags)}

    _edit(names, changes, **options)


def _set_command(name: str) -> click.Command:
    kind, words = KINDS[name], name.replace("_", " ")

    @click.command(words.replace(" ", "-"), help=f"Set the {words} of machines. {limits_of(kind).help}")
    @_edit_options
    @click.option("--to", "value", required=True, type=get_args(kind)[0], help=f"The new {words}.")
    def command(names: tuple[str, ...], value: object, **options: Any) -> None:
        _edit(names, lambda machine: {name: value}, **options)

    return command


def _fixed_edit(verb: str, text: str, changed: dict[str, Any]) -> click.Command:
    @click.command(verb, help=text)
    @_edit_options
    def command(names: tuple[str, ...], **options: Any) -> None:
        _edit(names, lambda machine: changed, **options)

    return command


for _command in (
    _fixed_edit("cordon", "Give machines no new work; running work continues.", {"is_cordoned": True}),
    _fixed_edit("drain", "Hand over the work of machines and give them no new work.", {"is_draining": True}),
    _fixed_edit(
        "uncordon",
        "Let drained or cordoned machines work again.",
        {"is_cordoned": False, "is_draining": False},
    ),
    *map(_set_command, SETTINGS),
):
    machines.add_command(_command)


@machines.command("release")
@click.argument("names", nargs=-1, required=True)
@click.option("--reason", required=True, help="Why they are released; recorded in the event.")
@click.option(
    "--device", help="Release this cordoned device of the machine (one NAME), not the machine itself."
)
def machines_release(names: tuple[str, ...], reason: str, device: str | None) -> None:
    """End the quarantine of machines now and forget what failed there. With --device, let a machine use a cordoned
    device again, if it finds it well."""
    if device is not None and len(names) > 1:
        raise CliError("--device can only be used with a single machine", exit_code=2)
    with connect() as client:
        for machine in [client.machine_get(name) for name in names]:
            client.machine_release(machine["id"], reason=reason, device=device)
            click.echo(f"{machine['name']}: released{f' {device}' if device else ''}")


def _edit(
    names: tuple[str, ...], changes: Changes, *, reason: str | None, generation: int | None, dry_run: bool
) -> None:
    if not dry_run and not (reason or "").strip():
        raise CliError("--reason is required, except with --dry-run", exit_code=2)
    if generation is not None and len(names) > 1:
        raise CliError("--generation can only be used with a single machine", exit_code=2)
    with connect() as client:
        known = [client.machine_get(name) for name in names]
        if dry_run:
            _dry_run(client, known, changes)
            return
        for machine in known:
            edited = client.machine_edit(
                machine["id"],
                changes=changes(machine),
                reason=reason or "",
                generation=machine["generation"] if generation is None else generation,
            )
            is_same = edited["generation"] == machine["generation"]
            state = "unchanged" if is_same else f"generation {edited['generation']}"
            click.echo(f"{edited['name']}: {_desired(edited)} ({state})")


def _dry_run(client: Client, known: list[dict[str, Any]], changes: Changes) -> None:
    dry_run = client.machines_preview({machine["id"]: changes(machine) for machine in known})
    for machine in dry_run["machines"]:
        click.echo(
            f"{machine['name']} (generation {machine['generation']}): {_desired(machine['before'])} → "
            f"{_desired(machine['after'])}"
        )
    for sentence in dry_run["sentences"]:
        click.echo(f"  {sentence}")


def _tags_of(given: tuple[str, ...]) -> set[str]:
    return {tag.strip() for text in given for tag in text.split(",") if tag.strip()}


def _desired(machine: Mapping[str, Any]) -> str:
    return desired_text(DesiredState(**{name: machine[name] for name in KINDS}))


def _event_said(event: Mapping[str, Any]) -> str:
    """Say what an event changed: an edit by its fields, anything else by its kind."""
    return _edit_said(event["data"]) or event["kind"].removeprefix("machine.")


def _edit_said(data: Mapping[str, Any]) -> str:
    before, after = data.get("before", {}), data.get("after", {})
    return ", ".join(f"{field} {before[field]} → {value}" if field in before else f"{field} {value}"
                     for field, value in after.items())  # fmt: skip
