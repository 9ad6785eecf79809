"""What an embedded engine imports before its first request."""

import os
import subprocess
import sys

from tests.fixtures.repository import ROOT


def test_an_engine_without_guided_requests_never_loads_the_grammar_library() -> None:
    paths = os.pathsep.join(str(ROOT / part) for part in ("platform", "workers"))
    script = "import seamlessflow_workers.rollout.engine.preload, sys; print('llguidance' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "False"
