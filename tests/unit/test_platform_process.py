"""How the acceptance tests end an installation, shown on a process that stands for its launcher."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seamlessflow.cli.local.state import Home
from tests.acceptance.platform_process import PlatformProcess

STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


def begun(home: Path, script: str) -> PlatformProcess:
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as said:
        said.readline()
    return PlatformProcess(Home(home), {}, process=process)


def ended_with(installation: PlatformProcess) -> int | None:
    assert installation.process is not None
    return installation.process.returncode


def test_an_installation_whose_test_fails_is_killed(tmp_path: Path) -> None:
    installation = begun(tmp_path, STUBBORN)

    with pytest.raises(ZeroDivisionError), installation:
        1 / 0  # noqa: B018

    assert ended_with(installation) == -signal.SIGKILL


def test_an_installation_whose_test_succeeds_is_stopped(tmp_path: Path) -> None:
    installation = begun(tmp_path, "import signal; print(flush=True); signal.pause()")

    with installation:
        pass

    assert ended_with(installation) == -signal.SIGTERM


def test_an_installation_that_never_started_has_nothing_to_end(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), PlatformProcess(Home(tmp_path), {}):
        1 / 0  # noqa: B018
