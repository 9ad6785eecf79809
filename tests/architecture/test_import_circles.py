"""No module imports itself through others, in any plane, so each can be read and tested after those
that it imports."""

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


@pytest.mark.parametrize("package", ["seamlessflow", "seamlessflow_workers"])
def test_no_imports_are_circular(package: str) -> None:
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"these modules import one another: {' → '.join(error.args[1])}")
