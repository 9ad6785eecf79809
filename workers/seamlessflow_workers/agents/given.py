"""What a session's program is given on its host beside its own folder: the folders that its command names, and a size.

Takes the command and the variables of a program; returns paths that must stay where they are if the folders in which
every user may write become private (`keeper/private_folders`), and how large these may become.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from seamlessflow_workers.process.environment import AGENT_VARIABLES

SIZE_VARIABLE = "SEAMLESSFLOW_AGENT_TMP_MB"
USUAL_MB = 1024
PROGRAMS = "bin"  # beside which are the libraries of these programs


def folders_named(command: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return the folders of the files and programs that a command or its variables name, without repeats."""
    names = [*command]
    for variable in AGENT_VARIABLES & variables.keys():
        names += variables[variable].split(os.pathsep)
    return list(dict.fromkeys(str(folder) for name in names for folder in _folder_of(name)))


def private_size_mb(environ: Mapping[str, str]) -> int:
    """Return how large each private folder may become. Raises ValueError."""
    text = environ.get(SIZE_VARIABLE) or str(USUAL_MB)
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{SIZE_VARIABLE} must be a whole number of at least 1, got {text!r}")
    return int(text)


def _folder_of(name: str) -> Iterator[Path]:
    """Yield the folder to keep for a name; of a file in a folder that everybody may write to, only the file."""
    path = Path(name)
    if not path.is_absolute() or not path.exists():
        return
    folder = path if path.is_dir() else path.parent
    if folder.name == PROGRAMS:
        folder = folder.parent
    yield path if folder.stat().st_mode & stat.S_IWOTH else folder
