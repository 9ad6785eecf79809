"""`seamlessflow doctor`: the capabilities of this machine and its gaps, one line each."""

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click

from seamlessflow.cli.local.state import find_home
from seamlessflow.core.extensions.built_in import BUILT_IN
from seamlessflow.runtime.extensions import extensions_discover
from seamlessflow_workers.supervisor.capabilities import find_vllm, vllm_python
from seamlessflow_workers.supervisor.inventory import default_device

MIN_FREE_BYTES = 2 * 1024**3
_PACKAGES = ("django", "celery", "channels", "psycopg", "torch", "transformers", "deepspeed")


@dataclass(frozen=True, slots=True)
class Finding:
    is_ok: bool
    subject: str
    detail: str


@click.command()
def doctor() -> None:
    """Check this machine: Python, disk, cores, packages, a browser for the tests, and the running platform."""
    findings = list(_findings())
    for finding in findings:
        click.echo(f"{'ok ' if finding.is_ok else 'BAD'} {finding.subject:<14} {finding.detail}")
    if not all(finding.is_ok for finding in findings):
        sys.exit(1)


def _findings() -> Iterator[Finding]:
    yield Finding(
        (3, 11) <= sys.version_info[:2] <= (3, 13), "python", f"{platform.python_version()} (3.11 to 3.13)"
    )
    cores = sorted(os.sched_getaffinity(0))
    yield Finding(True, "cores", f"{len(cores)} usable: {cores}")
    home = find_home()
    existing = next(path for path in (home.root, *home.root.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    yield Finding(
        free >= MIN_FREE_BYTES, "disk", f"{free / 1024**3:.1f} GiB free under {home.root} (2 needed)"
    )
    for package in _PACKAGES:
        yield _package(package)
    vllm = find_vllm(vllm_python(os.environ), device=default_device())
    yield Finding(True, "vllm", vllm.version or f"not available (optional): {vllm.problem}")
    yield from _extensions()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    yield Finding(True, "browser", browser or "none on PATH: browser tests are skipped")
    run = home.read_run()
    yield Finding(
        True,
        "platform",
        f"up at {run.web_url} (process {run.pid})" if run else "not running; `seamlessflow up` starts it",
    )
    if run:
        yield Finding(
            True,
            "gateway role",
            run.gateway_role_shortfall or "its own, with the documented grants (docs/operations.md)",
        )


def _extensions() -> Iterator[Finding]:
    """Report the extensions installed in this environment: their names, and those that cannot be used."""
    found = extensions_discover()
    names = [
        *(found.extensions.environments.keys() - BUILT_IN.environments.keys()),
        *found.extensions.advantages,
        *(found.extensions.rewards.keys() - BUILT_IN.rewards.keys()),
    ]
    yield Finding(True, "extensions", ", ".join(sorted(names)) or "none installed (optional)")
    for problem in found.problems:
        yield Finding(False, "extension", problem)


def _package(name: str) -> Finding:
    try:
        return Finding(True, name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(False, name, "not installed; run `make setup`")
