"""Tests of one device: `make test-gpu` on an NVIDIA GPU; `make test-gpu DEVICE=cpu` tries the suite
itself.

`make test` does not collect them. Measurements go to `build/gpu/<device>.json`, under the device's
own name, or to where the list that runs them (`tests/gpu/checklist`) wants them.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fixtures.devices import is_asked_for
from tests.fixtures.repository import ROOT
from tests.gpu.checklist.running import FIGURES_VARIABLE

FOLDER = ROOT / "build" / "gpu"
Figures = dict[str, Any]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return None if is_asked_for() else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.timeout(540))


@pytest.fixture(scope="session")
def figures(device: torch.device) -> Iterator[Figures]:
    """A section for each test to fill; it is written when all tests are done, if any filled
    theirs."""
    sections: Figures = {}
    yield sections
    if not sections:
        return
    wanted = os.environ.get(FIGURES_VARIABLE)
    path = Path(wanted) if wanted else FOLDER / f"{device.type}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"circumstances": _circumstances(device), **sections}, indent=2) + "\n")
    print(f"\nfigures: {path}\n{path.read_text()}")


def _circumstances(device: torch.device) -> Figures:
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "processor",
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "cores": os.cpu_count(),
        "load before": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "deepspeed")},
        "commit": commit or "unknown",
        "written at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
