"""What carries weights loads torch only where tensors are touched."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["offering", "receiving", "transports.table", "transports.file.sending"])
def test_both_ends_and_the_table_of_transports_load_no_torch(module: str) -> None:
    program = f"import sys, seamlessflow_workers.weights.{module}; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"
