"""Loads a job's tasks from their JSONL file and chooses the task that a new group runs.

Without stages and history resampling, groups follow the tasks file in a seeded order that differs in each epoch and
needs no state. With them, each epoch's order is a row. It is made under the job's lock when the previous epoch is used
up or its stage ends, so a restarted gateway, or another one, continues where the job was. Invariant: group `index` of a
job always gets the same task.
"""

import functools
from codecs import BOM_UTF8
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from seamlessflow.core.algorithms.curriculum import epoch_plan, stage_is_over, stage_tasks
from seamlessflow.core.algorithms.section import StageSection
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.store.groups.epochs import Epoch, StageChange
from seamlessflow.data_plane.store.protocols import EpochStore

Task = dict[str, Any]


async def task_choose(epochs: EpochStore, spec: JobSpec, tasks_path: str, index: int) -> tuple[int, Task]:
    """Return the number and content of the task for group `index`, the job's next group. Raises ApiError (400)."""
    tasks = tasks_load(tasks_path)
    if not has_epochs(spec):
        which = task_index(index, num_tasks=len(tasks), seed=spec.seed)
    else:
        epoch = await _epoch_at(epochs, spec, tasks, index)
        which = int(epoch.order[index - epoch.first_index])
    return which, tasks[which]


def has_epochs(spec: JobSpec) -> bool:
    return bool(spec.algorithm.stages) or spec.algorithm.sampling.history


@functools.lru_cache(maxsize=64)
def tasks_load(path: str) -> tuple[Task, ...]:
    """Load a tasks file. Raises ApiError (400), which names the file and the line."""
    try:
        lines = Path(path).read_bytes().removeprefix(BOM_UTF8).split(b"\n")
    except OSError as error:
        raise tasks_unusable(f"The tasks file {path} cannot be read: {error.strerror}") from error
    tasks = tuple(_task(path, number, line) for number, line in enumerate(lines, start=1) if line.strip())
    if not tasks:
        raise tasks_unusable(f"The tasks file {path} has no tasks")
    return tasks


def tasks_unusable(reason: str) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, f"{reason}.", code="tasks_unusable")


def _task(path: str, number: int, line: bytes) -> Task:
    try:
        return msgspec.json.decode(line, type=Task)
    except msgspec.DecodeError as error:
        raise tasks_unusable(
            f"Line {number} of the tasks file {path} is not a JSON object: {error}"
        ) from error


def task_index(group_index: int, *, num_tasks: int, seed: int) -> int:
    """Return the task that group `group_index` runs: each epoch is a permutation of all tasks."""
    epoch, position = divmod(group_index, num_tasks)
    return int(_permutation(seed, epoch, num_tasks)[position])


@functools.lru_cache(maxsize=16)
def _permutation(seed: int, epoch: int, num_tasks: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.random.default_rng([seed, epoch]).permutation(num_tasks)


async def _epoch_at(epochs: EpochStore, spec: JobSpec, tasks: tuple[Task, ...], index: int) -> Epoch:
    """Return the newest epoch if it contains group `index`, else insert and return the one that follows."""
    newest = await epochs.newest()
    request = await epochs.stage_request()
    stage, why = await _stage_now(epochs, spec, newest)
    is_new_stage = newest is None or stage != newest.stage
    is_current = not is_new_stage and newest is not None and request.number == newest.stage_request
    if newest is not None and is_current and newest.first_index <= index < newest.end_index:
        return newest
    since = None if is_new_stage else await epochs.stage_began_at(stage)
    sampling = spec.algorithm.sampling
    number = 0 if newest is None else newest.number + 1
    plan = epoch_plan(
        _pool(spec, tasks, stage),
        lowest_rewards=await epochs.lowest_rewards(since=since) if sampling.history else {},
        correct_reward=sampling.correct_reward,
        seed=(spec.seed, number),
    )
    epoch = Epoch(number, stage, request.number, index, plan.order)
    change = None
    if newest is not None and is_new_stage:
        change = StageChange(_stage_name(spec, newest.stage), _stage_name(spec, stage), why)
    await epochs.insert(epoch, reason=f"{why}; {plan.reason}" if why else plan.reason, change=change)
    return epoch


async def _stage_now(epochs: EpochStore, spec: JobSpec, newest: Epoch | None) -> tuple[int, str]:
    """Return the stage of the next group, and the reason if it differs from the previous group's."""
    stages = spec.algorithm.stages
    if not stages:
        return 0, ""
    current = 0 if newest is None else newest.stage
    request = await epochs.stage_request()
    if request.stage is not None and request.number != (newest.stage_request if newest else 0):
        return min(request.stage, len(stages) - 1), "switched by hand"
    if newest is None or current + 1 >= len(stages):
        return current, ""
    reason = await _reason_to_end(epochs, stages[current], current)
    return (current, "") if reason is None else (current + 1, reason)


async def _reason_to_end(epochs: EpochStore, stage: StageSection, number: int) -> str | None:
    began_at = await epochs.stage_began_at(number)
    recent: list[float] = []
    if stage.until_metric is not None and began_at is not None:
        recent = await epochs.metric_recent(stage.until_metric, window=stage.window, since=began_at)
    num_updates = await epochs.num_updates_published()
    return stage_is_over(stage, num_updates=num_updates, recent=recent)


def _pool(spec: JobSpec, tasks: tuple[Task, ...], stage: int) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    stages = spec.algorithm.stages
    section = stages[stage] if stages else None
    pool = stage_tasks([str(task.get("domain", "")) for task in tasks], section)
    if len(pool) == 0:
        assert section is not None
        raise tasks_unusable(
            f"No task has one of the domains of stage {section.name!r}: {', '.join(section.domains)}"
        )
    return pool


def _stage_name(spec: JobSpec, number: int) -> str:
    return spec.algorithm.stages[number].name if spec.algorithm.stages else ""
