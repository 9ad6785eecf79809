"""Epochs of a job's tasks and the facts that stages and history resampling decide on. Call under the job's lock."""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

import datetime
from dataclasses import dataclass
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.lifecycle.groups import GroupState, SessionState
from seamlessflow.data_plane.store.connection import Connection, new_id
from seamlessflow.data_plane.store.events import job_event
from seamlessflow.data_plane.store.literals import sql_literal
from seamlessflow.data_plane.store.packing import packed, unpacked

_GROUP_OPEN = sql_literal(GroupState.OPEN)
_SESSION_CLOSED = sql_literal(SessionState.CLOSED)


@dataclass(frozen=True, slots=True)
class Epoch:
    number: int
    stage: int
    stage_request: int
    first_index: int
    order: NDArray[np.int32]

    @property
    def end_index(self) -> int:
        return self.first_index + len(self.order)


@dataclass(frozen=True, slots=True)
class StageRequest:
    """What a person asked for last; number 0: nobody did."""

    number: int
    stage: int | None


async def epoch_newest(connection: Connection, job_id: UUID) -> Epoch | None:
    cursor = await connection.execute(
        """SELECT number, stage, stage_request, first_index, "order" FROM trajectory_epoch
           WHERE job_id = %s ORDER BY number DESC LIMIT 1""",
        [job_id],
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    number, stage, request, first, order = row
    return Epoch(number, stage, request, first, np.frombuffer(unpacked(order), dtype="<i4").astype(np.int32))


async def epoch_insert(
    connection: Connection, epoch: Epoch, *, project_id: UUID, job_id: UUID, reason: str
) -> None:
    await connection.execute(
        """INSERT INTO trajectory_epoch (id, project_id, job_id, number, stage, stage_request, first_index, num_tasks,
                                         "order", reason, created_at)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, now())""",
        [
            new_id(), project_id, job_id, epoch.number, epoch.stage, epoch.stage_request, epoch.first_index,
            len(epoch.order), packed(epoch.order.astype("<i4").tobytes()), reason,
        ],
    )  # fmt: skip


async def stage_began_at(connection: Connection, job_id: UUID, stage: int) -> datetime.datetime | None:
    """When the job's stay in its present stage began."""
    cursor = await connection.execute(
        """SELECT min(created_at) FROM trajectory_epoch WHERE job_id = %(job)s AND stage = %(stage)s
           AND number > coalesce((SELECT max(number) FROM trajectory_epoch
                                  WHERE job_id = %(job)s AND stage <> %(stage)s), -1)""",
        {"job": job_id, "stage": stage},
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def stage_request_read(connection: Connection, job_id: UUID) -> StageRequest:
    cursor = await connection.execute(
        "SELECT stage_request, stage_requested FROM jobs_job WHERE id = %s", [job_id]
    )
    row = await cursor.fetchone()
    return StageRequest(0, None) if row is None else StageRequest(*row)


async def num_updates_published(connection: Connection, job_id: UUID) -> int:
    cursor = await connection.execute("SELECT published_batch FROM jobs_job WHERE id = %s", [job_id])
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def metric_recent(
    connection: Connection, job_id: UUID, name: str, *, window: int, since: datetime.datetime
) -> list[float]:
    """The newest `window` values of a published metric since a moment."""
    cursor = await connection.execute(
        """SELECT value FROM telemetry_metricpoint WHERE job_id = %s AND name = %s AND at >= %s
           ORDER BY step DESC LIMIT %s""",
        [job_id, name, since, window],
    )
    return [row[0] for row in await cursor.fetchall()]


async def lowest_rewards(
    connection: Connection, job_id: UUID, *, since: datetime.datetime | None
) -> dict[int, float]:
    """Lowest reward of the newest finalized group of each task, of groups begun since a moment."""
    if since is None:
        return {}
    cursor = await connection.execute(
        f"""SELECT newest.task_index, min(s.reward) FROM (
               SELECT DISTINCT ON (task_index) id, task_index FROM trajectory_group
               WHERE job_id = %s AND created_at >= %s AND task_index IS NOT NULL AND state <> {_GROUP_OPEN}
                     AND num_rewarded > 0 AND evaluation_version IS NULL
               ORDER BY task_index, index DESC) newest
           JOIN trajectory_session s ON s.group_id = newest.id AND s.state = {_SESSION_CLOSED} AND s.reward IS NOT NULL
           GROUP BY newest.task_index""",
        [job_id, since],
    )
    return {task: float(reward) for task, reward in await cursor.fetchall()}


async def stage_event(
    connection: Connection, *, project_id: UUID, job_id: UUID, source: str, target: str, reason: str
) -> None:
    await job_event(
        connection,
        project_id=project_id,
        job_id=job_id,
        kind="job.stage",
        reason=reason,
        data={"from": source, "to": target},
    )
