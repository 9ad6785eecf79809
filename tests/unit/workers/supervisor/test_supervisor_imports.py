"""The supervisor starts without the heavy libraries that its children use, and runs where they are not installed."""

import subprocess
import sys

import pytest

FRAMEWORKS = ("torch", "transformers", "deepspeed", "vllm")
EVERY_MODULE = f"""
import importlib, pkgutil, sys
from seamlessflow_workers import phases, process, supervisor

sys.modules.update(dict.fromkeys({FRAMEWORKS!r}))  # None: importing one of them fails
for package in (phases, process, supervisor):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(found.name)
        print(found.name)
"""


def said(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    "module", ["seamlessflow_workers.supervisor.__main__", "seamlessflow_workers.agents.preload"]
)
def test_supervisor_and_agent_runner_import_no_heavy_library(module: str) -> None:
    """numpy starts threads when it is imported, and a process with threads cannot be forked."""
    heavy = (*FRAMEWORKS, "celery", "django", "numpy")
    program = f"import sys; import {module}; print([name for name in {heavy!r} if name in sys.modules])"
    assert said(program) == "[]"


def test_no_module_of_the_supervisor_its_phases_or_its_processes_needs_a_learning_framework() -> None:
    loaded = said(EVERY_MODULE).splitlines()
    assert {"seamlessflow_workers.supervisor.machine", "seamlessflow_workers.phases.rollout"} < set(loaded)
