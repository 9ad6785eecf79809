"""Machines whose programs do not start: the paced engine and trainer exit at once where a file names their machine.

The supervisor's program says which machine it is, in the environment, and the installation names the folder of such
files. A test or benchmark breaks a machine while it works, and mends it.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

MACHINE, FOLDER = "SEAMLESSFLOW_TEST_MACHINE", "SEAMLESSFLOW_TEST_BROKEN_MACHINES"


def machine_name_note(arguments: list[str]) -> None:
    """Tell the programs that this supervisor will start which machine they run on."""
    os.environ[MACHINE] = arguments[arguments.index("--name") + 1]


def machine_break(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()


def machine_mend(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)


def exit_if_broken(environ: Mapping[str, str] = os.environ) -> None:
    folder, name = environ.get(FOLDER), environ.get(MACHINE)
    if folder and name and (Path(folder) / name).exists():
        sys.exit("the accelerator does not answer")
