"""`make demo` keeps its promise: it learns, it does not with a learning rate of 0, and two jobs may share machines."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.models import CACHE

NUM_UPDATES = "30"  # the fewest by which the demo judges itself
NUM_SHARED_UPDATES = "8"  # of each of two jobs, which have to train in turns
MOST_UNLEARNED = 0.4  # of the last of these updates; 0.12 without learning, more than 0.6 with it

pytestmark = pytest.mark.usefixtures("model_root")  # with it, the cache contains the example model


@pytest.mark.timeout(600)
def test_demo_raises_the_reward_as_promised(tmp_path: Path) -> None:
    ended = run_demo(tmp_path, "--updates", NUM_UPDATES)

    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.timeout(600)
def test_two_jobs_share_two_machines_and_both_complete_without_learning(tmp_path: Path) -> None:
    """Only one of the machines may train, so the jobs train in turns. The reward rises only through learning."""
    ended = run_demo(tmp_path, "--jobs", "2", "--lr", "0", "--updates", NUM_SHARED_UPDATES)

    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shared = re.search(
        r"^beta +worked for calculator demo 1 (\d+) s, calculator demo 2 (\d+) s$", ended.stdout, re.M
    )
    assert shared is not None
    assert min(map(int, shared.groups())) > 0
    rewards = [float(reward) for reward in re.findall(r"^reward +\S+ → (\S+)", ended.stdout, re.M)]
    assert len(rewards) == 2
    assert max(rewards) < MOST_UNLEARNED


def run_demo(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the demo, which decides by itself whether it kept its promise: its exit code is the
    result.

    It uses the example model from the checkout's cache, because other tests cover building it.
    """
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
