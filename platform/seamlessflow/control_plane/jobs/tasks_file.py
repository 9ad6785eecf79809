"""Checking a file of tasks: JSON Lines, one object per line. Enters: a path. Leaves: the number of tasks."""

from pathlib import Path

import orjson

from seamlessflow.control_plane.common.errors import field_error

MAX_LINE_BYTES = 1024 * 1024
MAX_TASKS = 10_000_000


def tasks_count(path: Path, *, field: str = "environment.tasks") -> int:
    """Count the tasks; blank lines are none. Raises ApplicationError naming `field` and the first bad line."""
    num_tasks = 0
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise field_error(field, f"line {number} is longer than {MAX_LINE_BYTES} bytes")
            if line.strip():
                _check(line, number, field)
                num_tasks += 1
    if not 1 <= num_tasks <= MAX_TASKS:
        raise field_error(field, f"the file holds {num_tasks} tasks; accepted: 1 to {MAX_TASKS}")
    return num_tasks


def _check(line: bytes, number: int, field: str) -> None:
    try:
        task = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise field_error(field, f"line {number} is not JSON: {error}") from error
    if not isinstance(task, dict):
        raise field_error(field, f"line {number} is not a JSON object")
    if b"\\u0000" in line:  # perhaps only the text of one: such a line is refused as well
        raise field_error(field, f"line {number} holds a NUL character, which no field accepts")
