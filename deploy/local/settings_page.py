"""Writes `docs/settings.md` from the variables that the processes read: `python -m deploy.local.settings_page`.

Invariant: what a process reads, and its default, is what the page says; a test compares the two.
"""

from collections.abc import Iterable
from typing import Any

from deploy.local.bootstrap import ROOT
from seamlessflow.control_plane.variables import VARIABLES as CONTROL_PLANE
from seamlessflow.data_plane.variables import VARIABLES as GATEWAY
from seamlessflow.runtime.variables import Variable
from seamlessflow_workers.supervisor.variables import VARIABLES as MACHINE

PAGE = ROOT / "docs" / "settings.md"
HEAD = """# Settings

Every process reads its environment when it starts, and exits with a message that names the variable,
its value and what is accepted if one is missing or invalid. An empty variable counts as a missing
one. This page is generated: `python -m deploy.local.settings_page`.
"""
STORE = """## Files in an object store

All processes that read or write files take these too if `ARTIFACT_ROOT` is in S3.

| variable | meaning | accepted | default |
|---|---|---|---|
| `AWS_ENDPOINT_URL` | the address of the store | http://host[:port] or https://host[:port] | AWS |
| `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, … | credentials | those that boto3 takes | the host's role |
| `SEAMLESSFLOW_CACHE_DIR` | where this host keeps copies | a folder | `cache/artifacts` in `SEAMLESSFLOW_HOME` |
| `SEAMLESSFLOW_CACHE_BYTES` | how many bytes of copies it keeps | a whole number | half of the disk |
"""


def page() -> str:
    """Return the page as it should be."""
    sections = (
        ("Control plane: web, scheduler, background workers", CONTROL_PLANE),
        ("Gateway", GATEWAY),
        ("Machines", MACHINE),
    )
    return "\n".join([HEAD, *(section(title, variables) for title, variables in sections), STORE])


def section(title: str, variables: Iterable[Variable[Any]]) -> str:
    head = [f"## {title}", "", "| variable | meaning | accepted | default |", "|---|---|---|---|"]
    rows = [f"| `{one.name}` | {one.help} | {one.accepted} | {default_of(one)} |" for one in variables]
    return "\n".join([*head, *rows, ""])


def default_of(variable: Variable[Any]) -> str:
    if variable.default_note:
        return variable.default_note
    if variable.default is None:
        return "must be set"
    return f"`{variable.default}`" if variable.default else "none"


if __name__ == "__main__":
    PAGE.write_text(page())
