"""Which tests a change concerns."""

from pathlib import Path

import pytest

from deploy.local.changed_tests import concerned_tests, main, module_name

FIXTURE = Path("tests/fixtures/gateways.py")
TEXTS = {
    FIXTURE: 'COMMAND = [PYTHON, "-m", "seamlessflow.data_plane"]\n',
    Path("tests/unit/test_trees.py"): "from seamlessflow.core.trajectory import (\n    prefix_tree,\n)\n",
    Path("tests/integration/test_turns.py"): "from tests.fixtures.gateways import COMMAND\n",
    Path("tests/acceptance/test_demo.py"): "from tests.fixtures.gateways import COMMAND\n",
    Path("tests/architecture/test_style.py"): "from seamlessflow.core.trajectory import prefix_tree\n",
}


@pytest.mark.parametrize(
    "changed, concerned",
    [
        ("seamlessflow.core.trajectory.prefix_tree", ["tests/unit/test_trees.py"]),
        ("seamlessflow.data_plane", ["tests/integration/test_turns.py"]),
        ("tests.fixtures.gateways", ["tests/integration/test_turns.py"]),
        ("tests.unit.test_trees", ["tests/unit/test_trees.py"]),
        ("seamlessflow.core.trajectory", ["tests/unit/test_trees.py"]),
        ("seamlessflow.core.ids", []),
    ],
)
def test_a_change_concerns_tests_that_reach_it_through_imports_fixtures_and_programs(
    changed: str, concerned: list[str]
) -> None:
    assert concerned_tests(TEXTS, {changed}) == concerned


@pytest.mark.parametrize(
    "path, name",
    [
        ("platform/seamlessflow/core/ids.py", "seamlessflow.core.ids"),
        ("workers/seamlessflow_workers/train/__init__.py", "seamlessflow_workers.train"),
        ("tests/unit/test_trees.py", "tests.unit.test_trees"),
        ("docs/architecture.md", None),
        ("platform/seamlessflow/data_plane/store/jobs.sql", "seamlessflow.data_plane.store.jobs"),
    ],
)
def test_a_file_has_the_name_of_its_module(path: str, name: str | None) -> None:
    assert module_name(Path(path)) == name


def test_an_unknown_base_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-revision"]) == 2
    assert "no-such-revision" in capsys.readouterr().err
