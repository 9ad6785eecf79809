"""Rows of evaluations: versions measured on held-out tasks, begun under the job's lock, finished with the last group.

Figures, metric points and the event commit together with the outcome that completes them, so none is ever partial.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

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
from seamlessflow.data_plane.store.connection import Connection, new_id
from seamlessflow.data_plane.store.events import job_event, scheduler_notify
from seamlessflow.runtime.sql import sql_literal

_GROUP_EVALUATED = sql_literal(GroupState.EVALUATED)
_SESSION_CLOSED = sql_literal(SessionState.CLOSED)

_TERMINAL = sorted(state.value for state in TERMINAL_JOB_STATES)


@dataclass(frozen=True, slots=True)
class Running:
    """The running evaluation; groups of tasks 0 … num_begun - 1 exist."""

    version: int
    num_tasks: int
    num_begun: int


async def evaluation_running(connection: Connection, job_id: UUID) -> Running | None:
    cursor = await connection.execute(
        """SELECT e.version, e.num_tasks, (SELECT count(*) FROM trajectory_group g
                                           WHERE g.job_id = e.job_id AND g.evaluation_version = e.version)
           FROM trajectory_evaluation e WHERE e.job_id = %s AND e.state = %s""",
        [job_id, EvaluationState.RUNNING.value],
    )
    row = await cursor.fetchone()
    return None if row is None else Running(*row)


async def version_due(connection: Connection, job_id: UUID, spec: JobSpec) -> int | None:
    """Return the newest version if it is due for evaluation; None otherwise."""
    cursor = await connection.execute(
        """SELECT j.latest_version, j.published_batch,
                  (SELECT max(version) FROM trajectory_evaluation e WHERE e.job_id = j.id)
           FROM jobs_job j WHERE j.id = %s""",
        [job_id],
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    latest, published_batch, last = row
    is_due = is_evaluation_due(
        every=spec.evaluation.every_versions,
        latest_version=latest,
        last_evaluated=last,
        is_last=published_batch >= spec.train.num_updates,
    )
    return int(latest) if is_due else None


async def evaluation_insert(
    connection: Connection, *, project_id: UUID, job_id: UUID, version: int, num_tasks: int, spec: JobSpec
) -> Running:
    await connection.execute(
        """INSERT INTO trajectory_evaluation (id, project_id, job_id, version, state, num_tasks, samples_per_task,
                                              pass_at_k, started_at)
           VALUES (%s, %s, %s, %s, %s, %s, %s, '{}', now())""",
        [
            new_id(), project_id, job_id, version, EvaluationState.RUNNING.value, num_tasks,
            spec.evaluation.samples_per_task,
        ],
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
    # The lock on the row: if two groups end at the same time, the later one sees both.
    cursor = await connection.execute(
        """SELECT project_id, num_tasks FROM trajectory_evaluation
           WHERE job_id = %s AND version = %s AND state = %s FOR UPDATE""",
        [job_id, version, EvaluationState.RUNNING.value],
    )
    row = await cursor.fetchone()
    if row is None:
        return False
    project_id, num_tasks = row
    cursor = await connection.execute(
        f"""SELECT count(*), min(min_version), max(max_version) FROM trajectory_group
           WHERE job_id = %s AND evaluation_version = %s AND state = {_GROUP_EVALUATED}""",
        [job_id, version],
    )
    whole = await cursor.fetchone()
    assert whole is not None
    num_evaluated, min_version, max_version = whole
    if num_evaluated < num_tasks:
        return False
    figures = await _figures(connection, job_id, version, spec)
    measured = version if min_version is None else max(version, min_version)
    EVALUATION_MOVES.check(EvaluationState.RUNNING, EvaluationState.FINISHED)
    await connection.execute(
        """UPDATE trajectory_evaluation SET state = %s, ended_at = now(), num_rewarded = %s, num_sampled_tokens = %s,
                  min_version = %s, max_version = %s, reward_mean = %s, pass_at_1 = %s, pass_at_k = %s, version = %s
           WHERE job_id = %s AND version = %s""",
        [
            EvaluationState.FINISHED.value, figures.num_rewarded, figures.num_sampled_tokens, min_version, max_version,
            figures.reward_mean, figures.pass_at.get(1), Jsonb({str(k): p for k, p in figures.pass_at.items()}),
            measured, job_id, version,
        ],
    )  # fmt: skip
    await connection.execute(
        "UPDATE trajectory_group SET evaluation_version = %s WHERE job_id = %s AND evaluation_version = %s",
        [measured, job_id, version],
    )
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
        cursor = await connection.execute(
            """UPDATE trajectory_evaluation e SET state = %s, ended_at = now() FROM jobs_job j
               WHERE e.state = %s AND j.id = e.job_id AND j.state = ANY(%s)
               RETURNING e.project_id, e.job_id, e.version, j.state""",
            [EvaluationState.CANCELLED.value, EvaluationState.RUNNING.value, _TERMINAL],
        )
        for project_id, job_id, version, job_state in await cursor.fetchall():
            await job_event(
                connection,
                project_id=project_id,
                job_id=job_id,
                kind="evaluation.state",
                from_state=EvaluationState.RUNNING.value,
                to_state=EvaluationState.CANCELLED.value,
                reason=f"the evaluation of version {version} was not completed: the job is {job_state}",
                data={"version": version},
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
    cursor = await connection.execute(
        f"""SELECT count(*) FILTER (WHERE s.state = {_SESSION_CLOSED} AND s.reward IS NOT NULL),
                  count(*) FILTER (WHERE s.state = {_SESSION_CLOSED} AND s.reward >= %(correct)s),
                  avg(s.reward) FILTER (WHERE s.state = {_SESSION_CLOSED}),
                  sum(s.num_sampled_tokens) FILTER (WHERE s.state = {_SESSION_CLOSED} AND s.reward IS NOT NULL),
                  count(*) FILTER (WHERE s.state = {_SESSION_CLOSED} AND s.is_timeout), sum(s.num_sampled_tokens),
                  (SELECT extract(epoch FROM now() - e.started_at)::float FROM trajectory_evaluation e
                   WHERE e.job_id = %(job)s AND e.version = %(version)s)
           FROM trajectory_group g LEFT JOIN trajectory_session s ON s.group_id = g.id
           WHERE g.job_id = %(job)s AND g.evaluation_version = %(version)s GROUP BY g.id""",
        {"job": job_id, "version": version, "correct": spec.evaluation.correct_reward},
    )
    samples, passed, rewards, lengths, timeouts, tokens, durations = zip(
        *await cursor.fetchall(), strict=True
    )
    num_rewarded = sum(samples)
    known = [reward for reward in rewards if reward is not None]
    estimates = {k: pass_at_k_mean(samples, passed, k) for k in spec.evaluation.ks}
    return _Figures(
        num_rewarded=num_rewarded,
        num_sampled_tokens=int(sum(number or 0 for number in tokens)),
        duration_s=durations[0],
        reward_mean=float(np.mean(known)) if known else None,
        length_mean=float(sum(number or 0 for number in lengths)) / num_rewarded if num_rewarded else None,
        timeout_fraction=sum(timeouts) / num_rewarded if num_rewarded else None,
        pass_at={k: estimate for k, estimate in estimates.items() if estimate is not None},
    )


async def _metrics_store(
    connection: Connection, project_id: UUID, job_id: UUID, step: int, metrics: dict[str, Any]
) -> None:
    await connection.execute(
        """INSERT INTO telemetry_metricpoint (project_id, job_id, name, step, value, at)
           SELECT %s, %s, name, %s, value, now() FROM unnest(%s::text[], %s::float8[]) AS point (name, value)
           ON CONFLICT (job_id, name, step) DO UPDATE SET value = excluded.value""",
        [project_id, job_id, step, list(metrics), list(metrics.values())],
    )
