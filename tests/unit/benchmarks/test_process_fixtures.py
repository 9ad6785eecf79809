"""What the process fixtures see: a process that was only just forked is not mistaken for its
parent."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.processes import pid_by_words, processes_of, until

# The child waits between fork and exec until the parent's input ends, as any child does for a moment.
FORKS_WITHOUT_EXEC = "import os, sys; pid = os.fork(); pid and print('forked', flush=True); sys.stdin.read()"


def test_a_fork_that_has_not_executed_its_program_is_not_the_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKS_WITHOUT_EXEC, "--name", "alpha"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "forked\n"
        assert len(processes_of(tmp_path)) == 2
        assert pid_by_words(tmp_path, "--name alpha") == process.pid
        with pytest.raises(ValueError, match="not enough values"):
            pid_by_words(tmp_path, "--name beta")


def test_two_processes_with_the_same_words_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "--name", "alpha"]
    with (
        subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE),
        subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE),
    ):
        until(lambda: len(processes_of(tmp_path)) == 2, what="both have executed their program")
        with pytest.raises(ValueError, match="too many values"):
            pid_by_words(tmp_path, "--name alpha")
