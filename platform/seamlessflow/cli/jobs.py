"""`submit` and `jobs`: submit a job from a file and follow it to its end."""

import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml

from seamlessflow.cli.connection import connect
from seamlessflow.cli.errors import CliError
from seamlessflow.cli.identifiers import Identifier
from seamlessflow.cli.job_logs import logs
from seamlessflow.cli.submission_keys import submission_key
from seamlessflow.client import Client, JobStopped, needs_attention
from seamlessflow.core.environment.programs import relative_file
from seamlessflow.core.families import FAMILY_TITLES, ModelFamily
from seamlessflow.core.job_spec import InvalidJobSpec, JobSpec
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, JobState
from seamlessflow.core.sizing.memory_needs import size_text
from seamlessflow.core.spec_submission import submitted_spec_parse
from seamlessflow.core.types.ids import IdKind
from seamlessflow.core.types.limits import Priority, limits_of
from seamlessflow.runtime.yaml_documents import yaml_document

TIME_OVER = 4  # exit code


_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output."
)
_timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop waiting after this long, with exit code 4; the job continues.",
)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--wait",
    is_flag=True,
    help="Follow the job; exit 0 if it completes, 3 if it is cancelled, 5 if the platform pauses it.",
)
@click.option(
    "--key",
    metavar="KEY",
    help=(
        "The same key and spec give the same job again. Default: in CI, derived from the run and the spec; otherwise "
        "each call creates a job."
    ),
)
@click.option(
    "--upload/--no-upload", default=True, help="Upload local files and folders that the spec names."
)
@click.option("--project", metavar="SLUG", help="Project. May be left out if you are in one project only.")
@_timeout_option
@_json_option
def submit(
    file: Path,
    wait: bool,
    upload: bool,
    project: str | None,
    timeout: float | None,
    as_json: bool,
    key: str | None,
) -> None:
    """Submit the job described in FILE (YAML or JSON)."""
    spec = _spec_read(file)
    with connect() as client:
        if upload:
            _upload_local_paths(client, spec, base=file.parent, project=project)
        job = client.job_submit(spec, project=project, key=key or submission_key(os.environ, spec))
        click.echo(f"submitted {job['id']}: {client.base_url}/jobs/{job['id']}", err=as_json)
        click.echo(f"the model's answers are read as {_family_title(job['spec']['model'])}", err=as_json)
        for note in job["model_notes"]:
            click.echo(note, err=as_json)
        for line in _memory_lines(job["memory"]):
            click.echo(line, err=as_json)
        if as_json and not wait:
            _print_json(job)
        if wait:
            _follow(client, job, timeout_s=timeout, as_json=as_json)


def _memory_lines(memory: Mapping[str, Any] | None) -> Iterator[str]:
    """Say how much memory the model needs, for each role."""
    for role, who in (("rollout", "an engine"), ("train", "a trainer")):
        need = memory and memory[role]
        if need:
            on_each = f" on each of {need['num_devices']} devices" if need["num_devices"] > 1 else ""
            least, usual = size_text(need["least_bytes"]), size_text(need["usual_bytes"])
            yield f"{who} needs at least {least} of a device's memory{on_each}, and usually {usual}"


@click.group()
def jobs() -> None:
    """List, show and control jobs."""


@jobs.command("list")
@click.option("--state", help="Show only jobs in this state.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@_json_option
def jobs_list(state: str | None, limit: int, as_json: bool) -> None:
    """List the newest jobs."""
    with connect() as client:
        rows = [job for job, _ in zip(client.job_list(state=state), range(limit), strict=False)]
    if as_json:
        _print_json(rows)
        return
    if not rows:
        none = (
            f"no job is {state}" if state else "no jobs yet; submit one with `seamlessflow submit job.yaml`"
        )
        click.echo(none)
    for job in rows:
        click.echo(f"{job['id']}  {job['state']:<10} v{job['latest_version']:<6} {job['name']}")


@jobs.command("show")
@click.argument("job_id", type=Identifier(IdKind.JOB))
@_json_option
def jobs_show(job_id: str, as_json: bool) -> None:
    """Show everything about one job, as YAML."""
    with connect() as client:
        if as_json:
            _print_json(client.job_get(job_id))
            return
        click.echo(yaml.safe_dump(client.job_get(job_id), sort_keys=False, allow_unicode=True), nl=False)


@jobs.command("wait")
@click.argument("job_id", type=Identifier(IdKind.JOB))
@_timeout_option
@_json_option
def jobs_wait(job_id: str, timeout: float | None, as_json: bool) -> None:
    """Wait for a job: exit 0 if it completes, 3 if it is cancelled, 5 if the platform pauses it."""
    with connect() as client:
        _follow(client, client.job_get(job_id), timeout_s=timeout, as_json=as_json)


@jobs.command("metrics")
@click.argument("job_id", type=Identifier(IdKind.JOB))
@click.option(
    "--name", "names", multiple=True, help="Show only this metric; may be repeated. Default: all metrics."
)
@_json_option
def jobs_metrics(job_id: str, names: tuple[str, ...], as_json: bool) -> None:
    """Show the newest value of each metric; with --json, every point, as columns `step` and
    `value`."""
    with connect() as client:
        if as_json:
            columns = client.job_metric_points(job_id, names)
        else:
            columns = client.job_metrics(job_id, names, buckets=1)["metrics"]
    if absent := sorted(set(names) - columns.keys()):
        raise CliError(f"the job has no metric {', '.join(absent)}", exit_code=2)
    if as_json:
        _print_json(columns)
        return
    for name, column in sorted(columns.items()):
        click.echo(f"{name:<40} step {column['step'][-1]:<6} {column['value'][-1]:g}")


@jobs.command("audit")
@click.argument("job_id", type=Identifier(IdKind.JOB))
def jobs_audit(job_id: str) -> None:
    """Check that nothing was lost or duplicated, each batch is in the weights once, and the ledgers
    are complete."""
    with connect() as client:
        report = client.job_part(job_id, "audit")
    for check in report["checks"]:
        click.echo(f"{'ok ' if check['ok'] else 'BAD'} {check['name']}: {check['detail']}")
    if not report["ok"]:
        raise CliError("the audit found faults")


@jobs.command("stage")
@click.argument("job_id", type=Identifier(IdKind.JOB))
@click.argument("stage")
@click.option("--reason", default="", help="Reason, kept in the audit trail.")
def jobs_stage(job_id: str, stage: str, reason: str) -> None:
    """Switch a job to the tasks of STAGE, one of its algorithm.stages."""
    with connect() as client:
        client.job_stage(job_id, stage, reason=reason)
    click.echo(f"{job_id} continues with the tasks of stage {stage}")


@jobs.command("priority", context_settings={"ignore_unknown_options": True})
@click.argument("job_id", type=Identifier(IdKind.JOB))
@click.argument("priority", type=click.IntRange(*limits_of(Priority).span))
@click.option("--reason", default="", help="Reason, kept in the audit trail.")
def jobs_priority(job_id: str, priority: int, reason: str) -> None:
    """Set the PRIORITY of a job while it waits or runs."""
    with connect() as client:
        job = client.job_prioritize(job_id, priority, reason=reason)
    click.echo(f"{job_id} has the priority {job['priority']}")


def _steering(verb: str, goals: frozenset[str], text: str) -> click.Command:
    """Make a command that requests a state; `goals`: the states in which the request is fulfilled."""

    @click.command(verb, help=text)
    @click.argument("job_id", type=Identifier(IdKind.JOB))
    @click.option("--reason", default="", help="Reason, kept in the audit trail.")
    @click.option("--wait", is_flag=True, help=f"Wait until the job is {' or '.join(sorted(goals))}.")
    def command(job_id: str, reason: str, wait: bool) -> None:
        with connect() as client:
            job = client.job_edit(job_id, verb, reason=reason)
            click.echo(_asked_line(job))
            if wait and job["state"] not in goals:
                _follow_to(client, job, goals, verb)

    return command


jobs.add_command(
    _steering("cancel", frozenset({"cancelled"}), "Stop a job; its published versions are kept in full.")
)
jobs.add_command(
    _steering("pause", frozenset({"paused"}), "Pause a job: free its machines and keep its state.")
)
jobs.add_command(
    _steering("resume", frozenset({"running"}), "Resume a paused job, on any machines that fit.")
)


@jobs.command("export")
@click.argument("job_id", type=Identifier(IdKind.JOB))
@click.option("--version", type=click.IntRange(min=0), help="Policy version. Default: the latest.")
@click.option(
    "--form",
    type=click.Choice(["model", "adapter"]),
    default="model",
    show_default=True,
    help="All weights (an adapter is merged), or only the adapter, in peft's format.",
)
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, help="Folder to create; it must not exist."
)
def jobs_export(job_id: str, version: int | None, form: str, output: Path) -> None:
    """Write a version's weights to a folder that transformers can load with from_pretrained."""
    with connect() as client:
        number = client.job_get(job_id)["latest_version"] if version is None else version
        try:
            client.version_export(job_id, number, output, form=form)
        except OSError as error:
            raise CliError(f"cannot write to {output}: {error.strerror or error}") from error
    click.echo(f"version {number} of {job_id} is in {output}")


@jobs.command("trajectories")
@click.argument("job_id", type=Identifier(IdKind.JOB))
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, help="Folder to create; it must not exist."
)
def jobs_trajectories(job_id: str, output: Path) -> None:
    """Write a job's trajectories as Parquet: sessions.parquet and nodes.parquet."""
    with connect() as client:
        try:
            client.trajectories_export(job_id, output)
        except OSError as error:
            raise CliError(f"cannot write to {output}: {error.strerror or error}") from error
    click.echo(f"the trajectories of {job_id} are in {output}")


jobs.add_command(logs)


def _asked_line(job: dict[str, Any]) -> str:
    return f"{job['id']} {job['state']}, asked to {job['desired']}"


def _follow_to(client: Client, job: dict[str, Any], goals: frozenset[str], verb: str) -> None:
    """Print each change until a goal is reached. Raises CliError if the job ends in another
    state."""
    shown: tuple[object, ...] = ()
    for seen in client.job_watch(job["id"], every_s=0.2):
        job = seen
        line = (job["state"], job["waiting_reason"])
        if line != shown:
            shown = line
            click.echo(f"{job['state']:<10} {job['waiting_reason']}".rstrip())
        if job["state"] in goals:
            return
    raise CliError(f"the job ended as {job['state']} before the {verb} took effect: {job['state_reason']}")


def _spec_read(file: Path) -> dict[str, Any]:
    try:
        spec = yaml_document(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CliError(f"{file} is not valid YAML: {_yaml_fault(error)}", exit_code=2) from error
    if not isinstance(spec, dict):
        raise CliError(f"{file} must contain a mapping of keys, got {type(spec).__name__}", exit_code=2)
    _absolute_program(spec, base=file.parent)
    try:
        submitted_spec_parse(spec)
    except InvalidJobSpec as error:
        raise CliError(f"{file}: {error}", exit_code=2) from error
    return spec


def _absolute_program(spec: dict[str, Any], *, base: Path) -> None:
    """Replace files beside the spec that the agents' command names by their absolute paths."""
    environment = spec.get("environment")
    command = environment.get("command") if isinstance(environment, dict) else None
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        return  # the parser reports the error
    while found := relative_file(command):
        position, word = found
        path = (base / Path(word).expanduser()).resolve()
        if not path.exists():
            return
        command[position] = str(path)
        click.echo(f"environment.command: machines tagged agent must have {path}", err=True)


def _yaml_fault(error: yaml.YAMLError | UnicodeDecodeError) -> str:
    """Return the error and its position in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return str(error).splitlines()[0]


def _upload_local_paths(client: Client, spec: dict[str, Any], *, base: Path, project: str | None) -> None:
    """Upload paths that exist beside the spec and replace them; the server resolves all other
    references.

    Raises CliError for a relative path that does not exist, before anything is sent.
    """
    paths = {}
    for section, key in JobSpec.uploads():
        reference = (spec.get(section) or {}).get(key)
        if not isinstance(reference, str) or "://" in reference:
            continue
        path = base / Path(reference).expanduser()
        if path.exists():
            paths[section, key] = path
        elif not path.is_absolute() or not Path(reference).is_absolute():
            raise CliError(f"{section}.{key}: {path} does not exist", exit_code=2)
    for (section, key), path in paths.items():
        click.echo(f"uploading {path}", err=True)
        spec[section][key] = client.upload(path, project=project)


def _follow(client: Client, job: dict[str, Any], *, timeout_s: float | None, as_json: bool) -> None:
    """Print each change until the job ends or needs attention. Raises JobStopped, and CliError on timeout.

    With `as_json`, the job is printed however this ends, because a script needs its id then, too.
    """
    shown: tuple[object, ...] = ()
    deadline_at = math.inf if timeout_s is None else time.monotonic() + timeout_s
    try:
        for seen in client.job_watch(job["id"]):
            job = seen
            line = (job["state"], job["latest_version"], job["waiting_reason"])
            if line != shown:
                shown = line
                text = f"{job['state']:<10} version {job['latest_version']} {job['waiting_reason']}"
                click.echo(text.rstrip(), err=as_json)
            if needs_attention(job):
                break
            if JobState(job["state"]) not in TERMINAL_JOB_STATES and time.monotonic() > deadline_at:
                raise CliError(
                    f"{job['id']} is still {job['state']} after {timeout_s:g} s; it continues",
                    exit_code=TIME_OVER,
                )
    finally:
        if as_json:
            _print_json(job)
    if job["state"] != JobState.COMPLETED:
        raise JobStopped(job)


def _print_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def _family_title(model: Mapping[str, Any]) -> str:
    family = str(model.get("family", ModelFamily.AUTO))
    return next((title for known, title in FAMILY_TITLES.items() if known == family), family)
