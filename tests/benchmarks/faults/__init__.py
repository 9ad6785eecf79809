"""The matrix of faults: each fault is injected while a job runs on a local installation, and the
history is checked.

`python -m tests.benchmarks faults`; FAULTS in the environment selects some of them, separated by
commas (`1a,7,9c`; `7` means 7a and 7b). Fault 15, an upgrade while jobs run, is not implemented
yet. A row per fault counts the sentences about what its requirements and the history checker found
wrong; build/bench/faults/findings.txt contains all of them. Fault 9 needs root and fault 8 needs
libfaketime; if one is missing, its rows are not met and say so.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from seamlessflow.cli.local.state import Home
from tests.acceptance.models import endless_model, example_model, example_tasks
from tests.benchmarks.faults import clocks, disks, jobs, partitions, processes, watchers
from tests.benchmarks.faults.trial import Fault, Finding, said, tried
from tests.benchmarks.faults.world import Environ, world_running
from tests.benchmarks.report import Bound, Goal, Measured, Row

FOLDER = Path("build/bench/faults")
ON_ONE_INSTALLATION = (*processes.FAULTS, *partitions.FAULTS, *watchers.FAULTS, *jobs.FAULTS)
# The database is on the disk of the whole installation, on which the others are mounted afterwards.
DISK_SIZES = {"database": "512m", "artifacts": "1g", "logs": "32m"}


async def measure() -> Sequence[Row]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "findings.txt").write_text("")
    for home in FOLDER.glob("home*"):  # jobs that a broken run left would hold the machines
        shutil.rmtree(home)
    names = [name for name in os.environ.get("FAULTS", "").split(",") if name]
    models = _models(FOLDER.absolute() / "models")
    findings = await _run(names, models, ON_ONE_INSTALLATION, "home")
    findings += await _clock_findings(names, models)
    findings += await _disk_findings(names, models)
    return [_row(finding) for finding in sorted(findings, key=lambda finding: _order(finding.fault))]


def is_chosen(fault: Fault, names: Sequence[str]) -> bool:
    """Without names, all are chosen; a number without a letter chooses all its variants."""
    return not names or fault.number in names or fault.number.rstrip("abcd") in names


def _order(fault: Fault) -> tuple[int, str]:
    return int(fault.number.rstrip("abcd")), fault.number


async def _run(
    names: Sequence[str],
    models: Path,
    faults: Sequence[Fault],
    folder: str,
    *,
    machine_environ: Callable[[str], Environ] = lambda name: {},
    plane_environ: Environ | None = None,
    server_environ: Environ | None = None,
) -> list[Finding]:
    """Run all chosen faults, one after another, on one installation."""
    chosen = [fault for fault in faults if is_chosen(fault, names)]
    if not chosen:
        return []
    async with world_running(
        Home(FOLDER.absolute() / folder),
        models,
        machine_environ=machine_environ,
        plane_environ=plane_environ,
        server_environ=server_environ,
    ) as world:
        findings = []
        for fault in chosen:
            # A thread sees the disks that its parent saw when it began, so it begins now.
            with ThreadPoolExecutor(max_workers=1) as thread:
                finding = await asyncio.get_running_loop().run_in_executor(thread, tried, world, fault)
            findings.append(finding)
            sys.stdout.write(said(finding))
            sys.stdout.flush()
            with (FOLDER / "findings.txt").open("a") as file:
                file.write(said(finding, most=sys.maxsize))
        return findings


async def _clock_findings(names: Sequence[str], models: Path) -> list[Finding]:
    file = FOLDER.absolute() / "server-clock"
    file.write_text("+0s")
    skew, step = clocks.skew_fault(), clocks.step_fault(file)
    if clocks.library() is None:
        return _skipped([skew, step], names, "libfaketime is not installed")
    skewed = await _run(names, models, [skew], "home-skewed", machine_environ=clocks.skewed_machine)
    steered: Mapping[str, str] = clocks.steerable_server(file)
    return skewed + await _run(
        names, models, [step], "home-steered", plane_environ=steered, server_environ=steered
    )


async def _disk_findings(names: Sequence[str], models: Path) -> list[Finding]:
    home = Home(FOLDER.absolute() / "home-small").create()
    folders = {"database": home.root, "artifacts": home.artifacts, "logs": home.logs}
    faults = disks.faults_of(**folders)
    if not any(is_chosen(fault, names) for fault in faults):
        return []
    if not disks.may_mount():
        return _skipped(faults, names, "only root may mount small disks")
    with ExitStack() as mounted:
        mounted.enter_context(disks.small_disks({folders[name]: size for name, size in DISK_SIZES.items()}))
        return await _run(names, models, faults, "home-small")


def _skipped(faults: Sequence[Fault], names: Sequence[str], why: str) -> list[Finding]:
    findings = [Finding(fault, [f"skipped: {why}"], (), 0.0) for fault in faults if is_chosen(fault, names)]
    for finding in findings:
        sys.stdout.write(said(finding))
    return findings


def _models(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    calculator = example_model(folder / "calculator")
    example_tasks(folder / "tasks.jsonl")
    if not (folder / "endless").exists():
        endless_model(folder / "endless", like=calculator)
    return folder


def _row(finding: Finding) -> Row:
    count, none = (Measured((value,), min_repeats=1) for value in (float(len(finding.faults)), 0.0))
    name = f"{finding.fault.number} {finding.fault.title}"
    return Row(name, "faults", count, "none", none, Goal(0, bound=Bound.AT_MOST))
