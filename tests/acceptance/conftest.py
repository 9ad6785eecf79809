"""One installation for all acceptance tests that need none of their own."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.browser import browser, complaints, page, visitor
from tests.acceptance.models import endless_model, example_model, example_tasks
from tests.acceptance.platform_process import PlatformProcess, new_platform
from tests.fixtures.example_extension import environ_with

# The visitor's fixtures, for every test of this folder.
__all__ = ["browser", "complaints", "page", "visitor"]

HAS_FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "acceptance" in item.path.parts:
            item.add_marker(pytest.mark.acceptance)
            item.add_marker(pytest.mark.timeout(420))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[HAS_FAILED] = True
    return report


@pytest.fixture(autouse=True)
def _no_job_left_by_a_failure(request: pytest.FixtureRequest) -> Iterator[None]:
    """Cancel what a test that failed has left on the shared installation, so that the next ones have its machines."""
    yield
    if HAS_FAILED in request.node.stash and "platform" in request.fixturenames:
        installation: PlatformProcess = request.getfixturevalue("platform")
        with installation.client() as client:
            for job in client.job_list():
                if job["ended_at"] is None:
                    client.job_edit(job["id"], "cancel", reason="its test failed")


@pytest.fixture(scope="session")
def model_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models `calculator` and `endless`, and `tasks.jsonl`."""
    root = tmp_path_factory.mktemp("models")
    example = example_model(root / "calculator")
    example_tasks(root / "tasks.jsonl")
    endless_model(root / "endless", like=example)
    return root


@pytest.fixture(scope="package")
def platform(
    model_root: Path, example_extension: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlatformProcess]:
    """A running installation with the demo's three machines, multiplexed, and the example extension.

    It ends with this package: idle for the rest of a run, it would use the processor of other tests.
    """
    with new_platform(tmp_path_factory.mktemp("home"), model_root=model_root) as installation:
        installation.environ["PYTHONPATH"] = environ_with(example_extension)["PYTHONPATH"]
        installation.start()
        yield installation


def calculator_spec(
    model_root: Path, *, num_updates: int, groups_per_batch: int = 4, **train: Any
) -> dict[str, Any]:
    """The spec of the demo's job, made smaller."""
    return {
        "name": "calculator",
        "model": {"source": str(model_root / "calculator"), "max_model_len": 256},
        "environment": {
            "name": "calculator",
            "tasks": str(model_root / "tasks.jsonl"),
            "max_turns": 3,
            "timeout_s": 60,
        },
        "rollout": {
            "group_size": 4,
            "groups_per_batch": groups_per_batch,
            "max_tokens_per_turn": 32,
            "max_concurrent_sessions": 48,
        },
        "algorithm": {"max_staleness": 3, "kl_coef": 0.0},
        "train": {
            "num_updates": num_updates,
            "learning_rate": 3e-4,
            "checkpoint_every_updates": 3,
            "keep_versions": 100,
            **train,
        },
    }
