"""Runs the acceptance tests again and again until the time is over or a round fails.

It takes the command of a round and the time, and returns the status of the round that failed, or 0.
It runs at least one round and finishes every round that it begins.
"""

import subprocess
import sys
import time
from collections.abc import Sequence

ACCEPTANCE = (sys.executable, "-m", "pytest", "-q", "tests/acceptance")


def soak(command: Sequence[str], *, duration_s: float) -> int:
    started_s = time.monotonic()
    num_rounds = 0
    while num_rounds == 0 or time.monotonic() - started_s < duration_s:
        num_rounds += 1
        status = subprocess.run(command, check=False).returncode
        elapsed_s = time.monotonic() - started_s
        outcome = "passed" if status == 0 else f"failed with status {status}"
        sys.stdout.write(f"soak: round {num_rounds} {outcome}, {elapsed_s:.0f} of {duration_s:.0f} s\n")
        sys.stdout.flush()
        if status:
            return status
    return 0
