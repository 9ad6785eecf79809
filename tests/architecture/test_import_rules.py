"""Which part may import which: rules that the contracts of import-linter (`make imports`) cannot express."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.fixtures.repository import ROOT

HEAVY = ("torch", "transformers", "deepspeed", "vllm")
# Started on every machine or in front of every request: they must be light, and run where no torch is installed.
LIGHT_MODULES = (
    "seamlessflow_workers.supervisor.__main__",
    "seamlessflow_workers.agents.__main__",
    "seamlessflow.data_plane.__main__",
    "seamlessflow.data_plane.app",
    "seamlessflow.control_plane.celery",
    "seamlessflow.cli.main",
    "seamlessflow.client",
)
NO_FRAMEWORK_MODULES = {"seamlessflow.core.job_spec": "django", "seamlessflow.data_plane.app": "django"}


def modules_loaded_by(module: str) -> set[str]:
    """Return the top-level packages that importing `module` loads in a new interpreter."""
    code = f"import sys, json, importlib; importlib.import_module({module!r}); print(json.dumps(sorted(sys.modules)))"
    path = os.pathsep.join(str(ROOT / folder) for folder in (".", "platform", "workers"))
    env = {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "tests.django_settings"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_light_process_starts_without_any_learning_framework(module: str) -> None:
    assert find_spec(module) is not None, f"{module} is gone: name the module that took its place"
    assert modules_loaded_by(module).isdisjoint(HEAVY)


@pytest.mark.parametrize("module,framework", NO_FRAMEWORK_MODULES.items())
def test_module_loads_without_the_framework_of_another_plane(module: str, framework: str) -> None:
    assert framework not in modules_loaded_by(module)


@pytest.mark.parametrize("root", ["platform", "workers"])
def test_an_import_root_is_not_a_package(root: str) -> None:
    # `platform` as a package would take the place of the standard library's module of that name.
    assert (ROOT / root).is_dir()
    assert not (ROOT / root / "__init__.py").exists()


@pytest.mark.parametrize("root", ["platform", "workers"])
def test_every_folder_of_modules_is_a_package(root: str) -> None:
    folders = {path.parent for path in (ROOT / root).rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_test_modules_have_unique_names() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
