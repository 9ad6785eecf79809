"""Rows of evaluations: versions measured on held-out tasks, begun under the job's lock, finished with the last group.

Figures, metric points and the event commit together with the outcome that completes them, so none is ever partial.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from psycopg.types.json import Jsonb

from seamlessflow.core.evaluation.pass_at_k import pass_at_k_mean
from seamlessflow.core.evaluation.schedule import is_evaluation_due
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.groups import EVALUATION_MOVES, EvaluationState, GroupState, SessionState
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.data_plane.store.connection import Connection, named_rows, new_id
from seamlessflow.data_plane.store.events import job_event, scheduler_notify
from seamlessflow.runtime.sql import statements

SQL = statements(__name__, EvaluationState, GroupState, SessionState, over=TERMINAL_JOB_STATES)


@dataclass(frozen=True, slots=True)
class Running:
    """The running evaluation; groups of tasks 0 … num_begun - 1 exist."""

    version: int
    num_tasks: int
    num_begun: int


async def evaluation_running(connection: Connection, job_id: UUID) -> Running | None:
    rows = await named_rows(connection, SQL["running"], {"job": job_id})
    return Running(**rows[0]._asdict()) if rows else None


async def version_due(connection: Connection, job_id: UUID, spec: JobSpec) -> int | None:
    """Return the newest version if it is due for evaluation; None otherwise."""
    for job in await named_rows(connection, SQL["newest"], {"job": job_id}):
        if is_evaluation_due(
            every=spec.evaluation.every_versions,
            latest_version=job.latest_version,
            last_evaluated=job.last_evaluated,
            is_last=job.published_batch >= spec.train.num_updates,
        ):
            return int(job.latest_version)
    return None


async def evaluation_insert(
    connection: Connection, *, project_id: UUID, job_id: UUID, version: int, num_tasks: int, spec: JobSpec
) -> Running:
    await connection.execute(
        SQL["insert"],
        {
            "id": new_id(), "project": project_id, "job": job_id, "version": version, "num_tasks": num_tasks,
            "samples_per_task": spec.evaluation.samples_per_task,
        },
    )  # fmt: skip
    await job_event(
        connection,
        project_id=project_id,
        job_id=job_id,
        kind="evaluation.state",
        to_state=EvaluationState.RUNNING.value,
        reason=f"version {version} is measured on {num_tasks} held-out tasks",
        data={"version": version},
    )
    return Running(version, num_tasks, num_begun=0)


async def evaluation_finish_if_whole(
    connection: Connection, job_id: UUID, version: int, spec: JobSpec
) -> bool:
    """Finish an evaluation once all its groups are evaluated. Call it in the transaction that moves a group.

    It is named after the oldest version that sampled a token of it. This is a later version than the one it was begun
    for if engines had updated before its first turn.
    """
    evaluation = {"job": job_id, "version": version}
    running = await named_rows(connection, SQL["lock"], evaluation)
    if not running:
        return False
    project_id, num_tasks = running[0].project_id, running[0].num_tasks
    (whole,) = await named_rows(connection, SQL["progress"], evaluation)
    if whole.num_evaluated < num_tasks:
        return False
    min_version, max_version = whole.min_version, whole.max_version
    figures = await _figures(connection, job_id, version, spec)
    measured = version if min_version is None else max(version, min_version)
    EVALUATION_MOVES.check(EvaluationState.RUNNING, EvaluationState.FINISHED)
    await connection.execute(
        SQL["finish"],
        {
            **evaluation, "num_rewarded": figures.num_rewarded, "num_sampled_tokens": figures.num_sampled_tokens,
            "min_version": min_version, "max_version": max_version, "reward_mean": figures.reward_mean,
            "pass_at_1": figures.pass_at.get(1), "pass_at_k": Jsonb({str(k): p for k, p in figures.pass_at.items()}),
            "measured": measured,
        },
    )  # fmt: skip
    await connection.execute(SQL["rename_groups"], {**evaluation, "measured": measured})
    metrics = figures.metrics(measured, max_version)
    await _metrics_store(connection, project_id, job_id, measured, metrics)
    await job_event(
        connection,
        project_id=project_id,
        job_id=job_id,
        kind="evaluation.state",
        from_state=EvaluationState.RUNNING.value,
        to_state=EvaluationState.FINISHED.value,
        reason=f"version {measured} is measured: {figures.num_rewarded} outcomes on {num_tasks} tasks",
        data={"version": measured, "begun_for_version": version, **metrics},
    )
    await scheduler_notify(connection, "evaluation finished")
    return True


async def evaluations_cancel(connection: Connection) -> None:
    """Cancel the evaluations of jobs that are over, because no agent runs their remaining tasks. Figures stay null."""
    EVALUATION_MOVES.check(EvaluationState.RUNNING, EvaluationState.CANCELLED)
    async with connection.transaction():
        for row in await named_rows(connection, SQL["cancel"], {}):
            await job_event(
                connection,
                project_id=row.project_id,
                job_id=row.job_id,
                kind="evaluation.state",
                from_state=EvaluationState.RUNNING.value,
                to_state=EvaluationState.CANCELLED.value,
                reason=f"the evaluation of version {row.version} was not completed: the job is {row.job_state}",
                data={"version": row.version},
            )


@dataclass(frozen=True, slots=True)
class _Figures:
    """Means over tasks; None if no task has enough outcomes."""

    num_rewarded: int
    num_sampled_tokens: int
    duration_s: float
    reward_mean: float | None
    length_mean: float | None
    timeout_fraction: float | None
    pass_at: dict[int, float]

    def metrics(self, version: int, max_version: int | None) -> dict[str, float]:
        """Return the metrics under the names of the catalogue, without those that are None."""
        known: dict[str, float | None] = {
            "eval/reward_mean": self.reward_mean,
            **{f"eval/pass_at_{k}": estimate for k, estimate in self.pass_at.items()},
            "eval/length_mean": self.length_mean,
            "eval/timeout_fraction": self.timeout_fraction,
            "eval/num_rewarded": float(self.num_rewarded),
            "eval/num_sampled_tokens": float(self.num_sampled_tokens),
            "eval/version_lag_max": None if max_version is None else float(max_version - version),
            "eval/duration_s": self.duration_s,
        }
        return {name: value for name, value in known.items() if value is not None}


async def _figures(connection: Connection, job_id: UUID, version: int, spec: JobSpec) -> _Figures:
    values = {"job": job_id, "version": version, "correct": spec.evaluation.correct_reward}
    tasks = await named_rows(connection, SQL["figures"], values)
    samples, passed = [task.num_rewarded for task in tasks], [task.num_passed for task in tasks]
    num_rewarded = sum(samples)
    known = [task.reward_mean for task in tasks if task.reward_mean is not None]
    estimates = {k: pass_at_k_mean(samples, passed, k) for k in spec.evaluation.ks}
    length = float(sum(task.num_rewarded_tokens or 0 for task in tasks))
    return _Figures(
        num_rewarded=num_rewarded,
        num_sampled_tokens=int(sum(task.num_tokens or 0 for task in tasks)),
        duration_s=tasks[0].duration_s,
        reward_mean=float(np.mean(known)) if known else None,
        length_mean=length / num_rewarded if num_rewarded else None,
        timeout_fraction=sum(task.num_timeouts for task in tasks) / num_rewarded if num_rewarded else None,
        pass_at={k: estimate for k, estimate in estimates.items() if estimate is not None},
    )


async def _metrics_store(
    connection: Connection, project_id: UUID, job_id: UUID, step: int, metrics: dict[str, Any]
) -> None:
    values = {"names": list(metrics), "values": list(metrics.values())}
    await connection.execute(SQL["metrics"], {"project": project_id, "job": job_id, "step": step, **values})
