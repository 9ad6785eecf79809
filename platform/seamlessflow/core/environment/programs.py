"""Which words of an agents' command can be no file, because they are relative.

Enters: a command, as a job's spec has it. Leaves: the position and text of the first such word, or the problem. Each
session runs in an empty folder of its own, so a relative path leads nowhere, and `~` is not expanded; what is decidable
without the machines is decided here.
"""

from collections.abc import Iterator, Sequence

from seamlessflow.core.spec_problems import SpecProblem

INTERPRETERS = ("python", "bash", "sh", "node", "ruby", "perl")
# Options of interpreters that take no value, so the script may follow.
PLAIN_OPTIONS = frozenset({"-u", "-I", "-B", "-E", "-s", "-O", "-OO", "-e", "-x", "-w"})


def relative_file(command: Sequence[str]) -> tuple[int, str] | None:
    """Return the position and text of a program or script that is named by a relative path."""
    for position in _file_positions(command):
        if not command[position].startswith("/"):
            return position, command[position]
    return None


def command_problems(command: Sequence[str]) -> Iterator[SpecProblem]:
    if found := relative_file(command):
        yield SpecProblem(
            field="environment.command",
            detail=f"{found[1]!r} is a relative path, but each session runs in an empty folder of its own; name the "
            "file by its absolute path on the machines tagged agent",
        )


def _file_positions(command: Sequence[str]) -> list[int]:
    """Return where the program is, if it is a path and no name to look up, and the script of a known interpreter."""
    if not command:
        return []
    program = command[0]
    positions = [0] if "/" in program else []
    if program.rpartition("/")[2].rstrip("0123456789.") in INTERPRETERS:
        script = next((n for n, word in enumerate(command) if n and word not in PLAIN_OPTIONS), None)
        if script is not None and not command[script].startswith("-"):
            positions.append(script)
    return positions
