"""A start without the database or the broker that it was told to use: one line says which."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("variable", ["DATABASE_URL", "BROKER_URL"])
def test_service_that_is_dead_at_start_is_named_in_one_line(variable: str, tmp_path: Path) -> None:
    dead = {
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
        "BROKER_URL": "redis://127.0.0.1:1/0",
        "BACKGROUND_BROKER_URL": "redis://127.0.0.1:1/1",
        "EVENTS_URL": "redis://127.0.0.1:1/2",
    }
    chosen = {
        name: url for name, url in dead.items() if (name == "DATABASE_URL") == (variable == "DATABASE_URL")
    }
    ended = subprocess.run(
        [sys.executable, "-m", "seamlessflow.cli", "up", "--no-machines"],
        env=os.environ | chosen | {"SEAMLESSFLOW_HOME": str(tmp_path / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert ended.returncode == 1
    assert variable in ended.stderr
    assert "Traceback" not in ended.stderr
