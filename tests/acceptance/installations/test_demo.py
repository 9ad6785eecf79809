"""`make demo` keeps its promise: it learns, and with a learning rate of 0 it does not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.models import CACHE

NUM_UPDATES = "30"  # the fewest by which the demo judges itself


@pytest.mark.timeout(600)
def test_demo_raises_the_reward_as_promised(tmp_path: Path) -> None:
    ended = run_demo(tmp_path, "--updates", NUM_UPDATES)

    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.timeout(600)
def test_demo_without_learning_does_not_raise_the_reward(tmp_path: Path) -> None:
    ended = run_demo(tmp_path, "--lr", "0", "--updates", NUM_UPDATES)

    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def run_demo(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the demo, which decides by itself whether it kept its promise: its exit code is the
    result.

    It uses the example model from the checkout's cache if there is one, because other tests cover
    building it.
    """
    if CACHE.exists():
        shutil.copytree(CACHE, home / "home" / "cache")
    return subprocess.run(
        [sys.executable, "-m", "seamlessflow.cli", "demo", *arguments],
        env=os.environ | {"SEAMLESSFLOW_HOME": str(home / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
