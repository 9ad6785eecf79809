"""The supervisor starts without the heavy libraries that its children use, and runs where they are not installed."""

import subprocess
import sys

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


def test_the_supervisor_imports_neither_torch_nor_celery_nor_django() -> None:
    heavy = (*FRAMEWORKS, "celery", "django", "numpy")
    program = (
        "import sys; import seamlessflow_workers.supervisor.__main__; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    assert said(program) == "[]"


def test_no_module_of_the_supervisor_its_phases_or_its_processes_needs_a_learning_framework() -> None:
    loaded = said(EVERY_MODULE).splitlines()
    assert {"seamlessflow_workers.supervisor.machine", "seamlessflow_workers.phases.rollout"} < set(loaded)
