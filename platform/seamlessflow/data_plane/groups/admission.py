"""Decides which new groups may begin: training groups within their bounds, and groups of a running evaluation.

Call it under the job's lock. It also begins an evaluation if the newest version is due and none is running.
"""

from dataclasses import dataclass

from seamlessflow.core.admission.pace import JobPace
from seamlessflow.core.admission.rule import Admitting, GroupCounts, RunAhead, num_admissible
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.data_plane.groups.tasks import Task, task_choose, tasks_load, tasks_unusable
from seamlessflow.data_plane.store.connection import Connection
from seamlessflow.data_plane.store.groups.admission import batches_served, group_counts, pace_read
from seamlessflow.data_plane.store.groups.epochs import PostgresEpochs
from seamlessflow.data_plane.store.groups.evaluations import (
    evaluation_insert,
    evaluation_running,
    version_due,
)
from seamlessflow.data_plane.store.groups.group_rows import NewGroup
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob


@dataclass(frozen=True, slots=True)
class Admission:
    """Groups `first_index` … `first_index + num_new - 1` may begin: training groups, or those of one evaluation."""

    num_new: int = 0
    first_index: int = 0
    evaluation_version: int | None = None

    async def group(self, connection: Connection, job: LiveJob, index: int) -> NewGroup:
        """Return the group with that index, ready to be inserted. Raises ApiError (400)."""
        if self.evaluation_version is None:
            epochs = PostgresEpochs(connection, project_id=job.project_id, job_id=job.job_id)
            which, task = await task_choose(epochs, job.spec, job.tasks_path, index)
            size = job.spec.rollout.group_size
        else:
            which, task = index, _held_out_task(job, index)
            size = job.spec.evaluation.samples_per_task
        return NewGroup(
            project_id=job.project_id,
            job_id=job.job_id,
            index=index,
            task_index=which,
            task=task,
            size=size,
            evaluation_version=self.evaluation_version,
        )


async def training_admission(connection: Connection, job: LiveJob) -> Admission:
    counts, num_new = await training_room(connection, job)
    return Admission(num_new, counts.next_index)


async def training_room(connection: Connection, job: LiveJob) -> tuple[GroupCounts, int]:
    """Return the job's training groups and how many new ones may begin."""
    served = await batches_served(connection, job.job_id, job.spec.algorithm.staleness_bound)
    pace = await _pace(connection, job, served.published)
    late_after_s = pace.longest_s if pace is not None else None
    counts = await group_counts(connection, job.job_id, served, late_after_s=late_after_s)
    return counts, num_admissible(_admitting(job.spec), counts, pace)


async def _pace(connection: Connection, job: LiveJob, published_batch: int) -> JobPace | None:
    """Return the pace of the published batches; it is the same until the next one, so it is kept."""
    if job.pace is None or job.pace[0] != published_batch:
        job.pace = (published_batch, await pace_read(connection, job.job_id, published_batch))
    return job.pace[1]


def _admitting(spec: JobSpec) -> Admitting:
    return Admitting(
        groups_per_batch=spec.rollout.groups_per_batch,
        num_updates=spec.train.num_updates,
        bound=spec.algorithm.staleness_bound,
        # Agents from outside bring their own tasks when they have some, so nothing but the bound refuses them.
        run_ahead=RunAhead.TO_BOUND if spec.environment.name == "external" else spec.rollout.run_ahead,
    )


async def evaluation_admission(connection: Connection, job: LiveJob) -> Admission:
    """Return the groups that the running evaluation admits, and begin one if it is due. Raises ApiError (400)."""
    if not job.spec.evaluation.is_on:
        return Admission()
    running = await evaluation_running(connection, job.job_id)
    if running is None:
        version = await version_due(connection, job.job_id, job.spec)
        if version is None:
            return Admission()
        running = await evaluation_insert(
            connection,
            project_id=job.project_id,
            job_id=job.job_id,
            version=version,
            num_tasks=len(tasks_load(job.evaluation_tasks_path)),
            spec=job.spec,
        )
    return Admission(running.num_tasks - running.num_begun, running.num_begun, running.version)


def _held_out_task(job: LiveJob, index: int) -> Task:
    tasks = tasks_load(job.evaluation_tasks_path)
    if index >= len(tasks):
        raise tasks_unusable(
            f"The tasks file {job.evaluation_tasks_path} has become shorter: it has {len(tasks)} tasks, and task "
            f"{index + 1} is needed"
        )
    return tasks[index]
