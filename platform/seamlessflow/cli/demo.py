"""`seamlessflow demo`: the whole product on this machine, from an untrained model to a higher
reward.

Starts the platform, creates the example model and its tasks (cached), submits the example job,
shows progress, prints a summary and stops. The exit code is 0 only if the reward rose as promised.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from seamlessflow.cli.connection import client_of
from seamlessflow.cli.demo_report import (
    NUM_UPDATES_JUDGED,
    holding_lines,
    is_short,
    judge,
    progress_line,
    summary_lines,
)
from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local.gpu_machines import gpus_here, placed
from seamlessflow.cli.local.identity import same_identity, wrapped
from seamlessflow.cli.local.layouts import LAYOUTS, MAX_JOBS, MULTIPLEXED, NODE, num_devices
from seamlessflow.cli.local.process_tree import run_to_end
from seamlessflow.cli.local.stack import running_stack
from seamlessflow.cli.local.state import Home, find_home
from seamlessflow.cli.platform import welcome
from seamlessflow.client import Client
from seamlessflow.core.job_spec import Dtype, EngineKind
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow_workers.supervisor.capabilities import find_vllm, vllm_python
from seamlessflow_workers.supervisor.inventory import default_device

# Small, so that one machine alone decodes more slowly than the other trains and both are needed.
MAX_NUM_SEQS = {"embedded": 2, "vllm": 12}
JOB_NAME = "calculator demo"
SEED = 0
NUM_TASKS = 2000
PROGRESS_EVERY_S = 5.0


@click.command()
@click.option(
    "--layout",
    type=click.Choice(sorted(LAYOUTS)),
    help=f"Layout of the machines, which decides their tags and devices.  [default: {MULTIPLEXED}, or {NODE} if an "
    "engine needs several devices]",
)
@click.option(
    "--engine",
    type=click.Choice([kind.value for kind in EngineKind]),
    default=EngineKind.EMBEDDED.value,
    show_default=True,
    help="Rollout engine.",
)
@click.option(
    "--tensor",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of devices over which an engine shards each layer (vLLM).",
)
@click.option(
    "--lr",
    type=click.FloatRange(min=0),
    default=2e-4,
    show_default=True,
    help="Learning rate. 0 checks that the reward does not rise without learning.",
)
@click.option(
    "--updates",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help=f"Number of policy versions to publish. With fewer than {NUM_UPDATES_JUDGED}, the reward is not judged.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, MAX_JOBS),
    default=1,
    show_default=True,
    help="Number of jobs that use the machines together.",
)
@click.option("--keep", is_flag=True, help="Keep the platform running afterwards, until Ctrl-C.")
def demo(
    layout: str | None, engine: str, tensor: int, lr: float, updates: int, jobs: int, keep: bool
) -> None:
    """Train the calculator policy on this machine, using the whole platform, in a few minutes."""
    layout = layout or (NODE if tensor > 1 else MULTIPLEXED)
    _devices_required(layout, engine, tensor)
    if engine == EngineKind.VLLM:
        _vllm_required()
    options = {"engine": engine, "tensor": tensor, "learning_rate": lr, "num_updates": updates}
    work = _run(layout=layout, options=options, num_jobs=jobs, keep=keep)
    succeeded = run_to_end(work)
    if succeeded is None:
        raise click.Abort
    if not succeeded:
        sys.exit(1)


def _vllm_required() -> None:
    """Fail before anything is started, because a job would only wait."""
    finding = find_vllm(vllm_python(os.environ), device=default_device())
    if finding.version is None:
        raise CliError(f"no vLLM engine can be started here: {finding.problem}")
    click.echo(f"engine     {finding.version}, which takes about half a minute to start")


def _devices_required(layout: str, engine: str, tensor: int) -> None:
    if tensor > 1 and engine != EngineKind.VLLM:
        raise CliError(f"TENSOR={tensor} needs ENGINE=vllm: the embedded engine computes on one device")
    if tensor > (num := num_devices(layout)):
        raise CliError(
            f"TENSOR={tensor} needs a machine with {tensor} devices, but the layout {layout} has {num}; accepted: "
            f"LAYOUT={NODE}, with at most {num_devices(NODE)}"
        )


async def _run(*, layout: str, options: Mapping[str, Any], num_jobs: int, keep: bool) -> bool:
    home = find_home().create()
    started_at = time.monotonic()
    example = asyncio.create_task(_example_make(home))
    is_interrupted = threading.Event()
    try:
        machines = placed(LAYOUTS[layout], gpus_here(os.environ), cores=os.sched_getaffinity(0))
        async with running_stack(home, machines, before_announced=welcome):
            files = await example
            click.echo(f"up in {time.monotonic() - started_at:.0f} s")
            spec = example_spec(files, num_ranks=num_devices(layout), **options)
            specs = list(_numbered(spec, num_jobs))
            succeeded = await asyncio.to_thread(_train, home, specs, layout, is_interrupted)
            if keep:
                click.echo("KEEP=1: the platform stays up; Ctrl-C stops it.")
                await asyncio.Event().wait()
    finally:
        is_interrupted.set()  # a thread cannot be cancelled, so it checks this event
        example.cancel()
    return succeeded


def example_spec(
    files: Mapping[str, Path],
    *,
    engine: str,
    learning_rate: float,
    num_updates: int,
    tensor: int = 1,
    num_ranks: int = 1,
) -> dict[str, Any]:
    """Return the spec of the demo's job, as a user would write it."""
    return {
        "name": JOB_NAME,
        # Not what suits the hardware: its rewards are judged, and were measured with this format.
        "model": {"source": str(files["model"]), "max_model_len": 256, "dtype": Dtype.FLOAT32.value},
        "environment": {"name": "calculator", "tasks": str(files["tasks"]), "max_turns": 4, "timeout_s": 60},
        "rollout": {
            "engine": engine,
            "group_size": 8,
            "groups_per_batch": 8,
            "max_tokens_per_turn": 24,
            "max_concurrent_sessions": 96,
            "max_num_seqs": MAX_NUM_SEQS[engine],
            "parallel": {"tensor": tensor},
        },
        "algorithm": {
            "name": "grpo",
            "advantage_norm": "mean",
            "aggregation": "token_mean",
            "clip_high": 0.28,
            "kl_coef": 0.0,
            "max_staleness": 3,
        },
        "train": {
            "num_updates": num_updates,
            "learning_rate": learning_rate,
            "num_ranks": num_ranks,
            "checkpoint_every_updates": 5,
            "keep_versions": 8,
        },
        "seed": SEED,
    }


def _numbered(spec: dict[str, Any], num_jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the specs of several jobs, which differ in name and seed."""
    for number in range(num_jobs):
        name = f"{JOB_NAME} {number + 1}" if num_jobs > 1 else JOB_NAME
        yield {**spec, "name": name, "seed": SEED + number}


def _train(home: Home, specs: Sequence[dict[str, Any]], layout: str, is_interrupted: threading.Event) -> bool:
    """Submit, follow and report. Runs in a thread because the client is synchronous."""
    with client_of(home) as client:
        _tags_set(client, layout)
        _leftovers_cancel(client)
        jobs = [client.job_submit(spec) for spec in specs]
        for job in jobs:
            click.echo(f"job        {client.base_url}/jobs/{job['id']}")
        submitted_at = time.monotonic()
        ended = list(_watched(client, jobs, submitted_at, is_interrupted))
        if is_interrupted.is_set():
            return False
        reported = [
            _report(client, job, spec, layout, running_s=running_s, is_alone=len(jobs) == 1)
            for (job, running_s), spec in zip(ended, specs, strict=True)
        ]
        if len(jobs) > 1:
            _holdings_echo(client, [job for job, _ in ended])
        return all(reported)


def _watched(
    client: Client, jobs: Sequence[dict[str, Any]], since_s: float, is_interrupted: threading.Event
) -> Iterator[tuple[dict[str, Any], float]]:
    """Show the progress of all jobs; yield each, as it ended, with the seconds that it took."""
    seen = {job["id"]: (job, 0.0) for job in jobs}
    watches = {
        job["id"]: client.job_watch(job["id"], every_s=0.5 / len(jobs), stop=is_interrupted) for job in jobs
    }
    shown_at = 0.0
    while watches:
        now = time.monotonic()
        for job_id, watch in list(watches.items()):
            job = next(watch, None)
            if job is None:
                del watches[job_id]
            else:
                seen[job_id] = (job, time.monotonic() - since_s)
        if now - shown_at >= PROGRESS_EVERY_S:
            shown_at = now
            for job, _ in seen.values():
                name = f"{job['name']}  " if len(jobs) > 1 else ""
                click.echo(name + progress_line(job, elapsed_s=now - since_s))
    yield from seen.values()


def _holdings_echo(client: Client, jobs: Sequence[dict[str, Any]]) -> None:
    click.echo("")
    for line in holding_lines({job["name"]: client.job_part(job["id"], "ledger") for job in jobs}):
        click.echo(line)


def _tags_set(client: Client, layout: str) -> None:
    """Give machines the tags of this layout, because those registered by an earlier start keep their tags."""
    registered = {machine["name"]: machine for machine in client.machine_list()}
    for machine in LAYOUTS[layout]:
        known = registered[machine.name]
        if sorted(known["tags"]) != sorted(machine.tags):
            client.machine_edit(
                known["id"],
                changes={"tags": list(machine.tags)},
                reason=f"demo layout {layout}",
                generation=known["generation"],
            )


def _leftovers_cancel(client: Client) -> None:
    """Cancel the jobs that an interrupted demo left behind, because this demo needs the machines."""
    for job in client.job_list():
        if job["name"].startswith(JOB_NAME) and job["state"] not in TERMINAL_JOB_STATES:
            client.job_edit(job["id"], "cancel", reason="left by an interrupted demo")
            click.echo(f"cancelled  {job['id']}, left by an interrupted demo")


def _report(
    client: Client,
    job: dict[str, Any],
    spec: dict[str, Any],
    layout: str,
    *,
    running_s: float,
    is_alone: bool,
) -> bool:
    views = {view: client.job_part(job["id"], view) for view in ("summary", "ledger", "audit")}
    click.echo("")
    for line in summary_lines(job, views["summary"], views["ledger"], views["audit"], running_s=running_s):
        click.echo(line)
    judgement = judge(
        job,
        views["summary"],
        views["audit"],
        learning_rate=spec["train"]["learning_rate"],
        # Of several jobs, one may have no request at the machine that turns to training.
        is_handing_over=is_alone
        and any({"rollout", "train"} <= set(machine.tags) for machine in LAYOUTS[layout]),
    )
    if is_short(job):
        click.echo(
            f"judgement  none: with fewer than {NUM_UPDATES_JUDGED} updates, neither reward nor hand-overs are judged"
        )
    for shortfall in judgement.shortfalls:
        click.echo(f"the demo fell short: {shortfall}", err=True)
    return judgement.is_success


async def _example_make(home: Home) -> dict[str, Path]:
    """Create the example model (a short supervised warm start on the first call) and its tasks;
    cached in the home."""
    models = home.root / "models"
    files = {"model": models / "calculator", "tasks": models / "calculator-tasks.jsonl"}
    click.echo(
        "example model: building (the first time takes about a minute)"
        if not files["model"].exists()
        else "example model: cached"
    )
    await _python(
        "seamlessflow_workers.example",
        "--out",
        str(files["model"]),
        "--cache",
        str(home.root / "cache"),
        "--seed",
        str(SEED),
    )
    await _python(
        "seamlessflow_workers.example.tasks",
        "--environment",
        "calculator",
        "--num",
        str(NUM_TASKS),
        "--seed",
        str(SEED),
        "--out",
        str(files["tasks"]),
    )
    return files


async def _python(module: str, *arguments: str) -> None:
    command = wrapped(
        (sys.executable, "-m", module, *arguments), identity=same_identity(), death_signal=signal.SIGKILL
    )
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        last = output.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
        raise CliError(f"{module} {json.dumps(arguments)} failed: {last[0]}")
