"""Tasks of a job: a JSONL file, run in a seeded order that differs each epoch.

Invariant: group `index` of a job always gets the same task, on whichever gateway.
"""

import functools
from pathlib import Path
from typing import Any

import msgspec
import numpy as np


class TasksUnusable(ValueError):
    """The tasks file is missing, empty or malformed."""


@functools.lru_cache(maxsize=64)
def tasks_load(path: str) -> tuple[dict[str, Any], ...]:
    """Load the tasks. Raises TasksUnusable, which names the line."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise TasksUnusable(f"the tasks file {path} cannot be read: {error.strerror}") from error
    tasks = tuple(_task(path, number, line) for number, line in enumerate(lines, start=1) if line.strip())
    if not tasks:
        raise TasksUnusable(f"the tasks file {path} holds no task")
    return tasks


def task_index(group_index: int, *, num_tasks: int, seed: int) -> int:
    """Return the task that group `group_index` runs: each epoch is a permutation of all tasks."""
    epoch, position = divmod(group_index, num_tasks)
    return int(_permutation(seed, epoch, num_tasks)[position])


@functools.lru_cache(maxsize=16)
def _permutation(seed: int, epoch: int, num_tasks: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.random.default_rng([seed, epoch]).permutation(num_tasks)


def _task(path: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise TasksUnusable(
            f"line {number} of the tasks file {path} is not a JSON object: {error}"
        ) from error
