"""Which task a new group runs.

Without stages and history resampling the tasks file is walked in a seeded order, another one each epoch, without any
state. With them the order of each epoch is a row: made under the job's lock when the epoch before it is used up or its
stage ends, so that a restart, or another gateway, goes on where the job was.
Invariant: group `index` of a job always gets the same task.
"""

from http import HTTPStatus
from typing import Any

import numpy as np

from seamlessflow.core.algorithms.curriculum import epoch_plan, stage_is_over, stage_tasks
from seamlessflow.core.algorithms.section import StageSection
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.groups.tasks import TasksUnusable, task_index, tasks_load
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.epochs import (
    Epoch,
    epoch_insert,
    epoch_newest,
    lowest_rewards,
    metric_recent,
    num_updates_published,
    stage_began_at,
    stage_event,
    stage_request_read,
)
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob

Task = dict[str, Any]


async def task_choose(connection: Connection, job: LiveJob, index: int) -> tuple[int, Task]:
    """Number and content of the task of group `index`, the next one of the job. Raises ApiError (400)."""
    try:
        tasks = tasks_load(job.tasks_path)
    except TasksUnusable as error:
        raise _unusable(str(error)) from error
    if not has_epochs(job.spec):
        which = task_index(index, num_tasks=len(tasks), seed=job.spec.seed)
    else:
        epoch = await _epoch_at(connection, job, tasks, index)
        which = int(epoch.order[index - epoch.first_index])
    return which, tasks[which]


def has_epochs(spec: JobSpec) -> bool:
    return bool(spec.algorithm.stages) or spec.algorithm.sampling.history


async def _epoch_at(connection: Connection, job: LiveJob, tasks: tuple[Task, ...], index: int) -> Epoch:
    """The newest epoch, or the one that has to follow it."""
    newest = await epoch_newest(connection, job.job_id)
    request = await stage_request_read(connection, job.job_id)
    stage, why = await _stage_now(connection, job, newest)
    is_new_stage = newest is None or stage != newest.stage
    is_current = not is_new_stage and newest is not None and request.number == newest.stage_request
    if newest is not None and is_current and newest.first_index <= index < newest.end_index:
        return newest
    since = None if is_new_stage else await stage_began_at(connection, job.job_id, stage)
    sampling = job.spec.algorithm.sampling
    number = 0 if newest is None else newest.number + 1
    plan = epoch_plan(
        _pool(job.spec, tasks, stage),
        lowest_rewards=await lowest_rewards(connection, job.job_id, since=since) if sampling.history else {},
        correct_reward=sampling.correct_reward,
        seed=(job.spec.seed, number),
    )
    epoch = Epoch(number, stage, request.number, index, plan.order)
    ids = {"project_id": job.project_id, "job_id": job.job_id}
    await epoch_insert(connection, epoch, **ids, reason=f"{why}; {plan.reason}" if why else plan.reason)
    if newest is not None and is_new_stage:
        names = [_stage_name(job.spec, number) for number in (newest.stage, stage)]
        await stage_event(connection, **ids, source=names[0], target=names[1], reason=why)
    return epoch


async def _stage_now(connection: Connection, job: LiveJob, newest: Epoch | None) -> tuple[int, str]:
    """The stage that the next group belongs to, and why it is another one than before."""
    stages = job.spec.algorithm.stages
    if not stages:
        return 0, ""
    current = 0 if newest is None else newest.stage
    request = await stage_request_read(connection, job.job_id)
    if request.stage is not None and request.number != (newest.stage_request if newest else 0):
        return min(request.stage, len(stages) - 1), "switched by hand"
    if newest is None or current + 1 >= len(stages):
        return current, ""
    reason = await _reason_to_end(connection, job, stages[current], current)
    return (current, "") if reason is None else (current + 1, reason)


async def _reason_to_end(
    connection: Connection, job: LiveJob, stage: StageSection, number: int
) -> str | None:
    began_at = await stage_began_at(connection, job.job_id, number)
    recent: list[float] = []
    if stage.until_metric is not None and began_at is not None:
        recent = await metric_recent(
            connection, job.job_id, stage.until_metric, window=stage.window, since=began_at
        )
    num_updates = await num_updates_published(connection, job.job_id)
    return stage_is_over(stage, num_updates=num_updates, recent=recent)


def _pool(spec: JobSpec, tasks: tuple[Task, ...], stage: int) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    stages = spec.algorithm.stages
    section = stages[stage] if stages else None
    pool = stage_tasks([str(task.get("domain", "")) for task in tasks], section)
    if len(pool) == 0:
        assert section is not None
        raise _unusable(
            f"no task has one of the domains {', '.join(section.domains)} of stage {section.name!r}"
        )
    return pool


def _stage_name(spec: JobSpec, number: int) -> str:
    return spec.algorithm.stages[number].name if spec.algorithm.stages else ""


def _unusable(reason: str) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, f"{reason}.", code="tasks_unusable")
