"""`queue`: the jobs that wait for machines, the machines that each lacks, the jobs that have them, and edits that would
help."""

import json
from collections.abc import Iterator
from itertools import islice

import click

from seamlessflow.cli.connection import connect
from seamlessflow.client.errors import Json


@click.command()
@click.option("--project", metavar="SLUG", help="Show only the jobs of this project.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output.")
def queue(project: str | None, limit: int, as_json: bool) -> None:
    """Show the jobs that wait for machines or could use more, in the order in which they are served."""
    with connect() as client:
        entries = list(islice(client.queue(project=project), limit))
    if as_json:
        click.echo(json.dumps(entries, ensure_ascii=False, indent=2))
        return
    if not entries:
        click.echo("no job waits for a machine")
    for entry in entries:
        click.echo("\n".join(_lines(entry)))


def _lines(entry: Json) -> Iterator[str]:
    position = "at work" if entry["place"] is None else f"place {entry['place']}"
    yield (
        f"{entry['job_id']}  {position:<9} priority {entry['priority']:<4} waits {entry['waiting_s']:.0f} s  "
        f"{entry['job_name']}"
    )
    yield f"  {entry['sentence']}"
    for shortage in entry["shortages"]:
        yield f"  {shortage['sentence']}"
        yield from (f"    {holder['sentence']}" for holder in shortage["holders"])
    for number, offer in enumerate(entry["unblocks"]):
        yield f"  {'cheapest' if number == 0 else 'or'}: {offer['sentence']}"
