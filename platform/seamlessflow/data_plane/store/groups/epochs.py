"""The epochs of a job's tasks and the moves between its stages: the values, and the `EpochStore` on PostgreSQL.

Use the store in the transaction that holds the job's lock.
"""

# ruff: noqa: S608 - statements are put together from constants, values are parameters

import datetime
from dataclasses import dataclass
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.lifecycle.groups import GroupState, SessionState
from seamlessflow.data_plane.store.connection import Connection, new_id
from seamlessflow.data_plane.store.events import job_event
from seamlessflow.data_plane.store.values import packed, unpacked
from seamlessflow.runtime.sql import sql_literal

_GROUP_OPEN = sql_literal(GroupState.OPEN)
_SESSION_CLOSED = sql_literal(SessionState.CLOSED)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over the tasks: groups `first_index` … `end_index - 1` run the tasks of `order`."""

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
    """The stage change that a person requested last; number 0 if there was none."""

    number: int
    stage: int | None


@dataclass(frozen=True, slots=True)
class StageChange:
    """A move from one stage to another, both by name."""

    source: str
    target: str
    reason: str


class PostgresEpochs:
    """An `EpochStore`; see `store/protocols` for its methods."""

    def __init__(self, connection: Connection, *, project_id: UUID, job_id: UUID) -> None:
        self._connection = connection
        self._project_id = project_id
        self._job_id = job_id

    async def newest(self) -> Epoch | None:
        cursor = await self._connection.execute(
            """SELECT number, stage, stage_request, first_index, "order" FROM trajectory_epoch
               WHERE job_id = %s ORDER BY number DESC LIMIT 1""",
            [self._job_id],
        )
        row = await cursor.fetchone()
        if row is None:
            return None
        number, stage, request, first, order = row
        return Epoch(
            number, stage, request, first, np.frombuffer(unpacked(order), dtype="<i4").astype(np.int32)
        )

    async def insert(self, epoch: Epoch, *, reason: str, change: StageChange | None = None) -> None:
        await self._connection.execute(
            """INSERT INTO trajectory_epoch (id, project_id, job_id, number, stage, stage_request, first_index,
                                             num_tasks, "order", reason, created_at)
               VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, now())""",
            [
                new_id(), self._project_id, self._job_id, epoch.number, epoch.stage, epoch.stage_request,
                epoch.first_index, len(epoch.order), packed(epoch.order.astype("<i4").tobytes()), reason,
            ],
        )  # fmt: skip
        if change is not None:
            await job_event(
                self._connection,
                project_id=self._project_id,
                job_id=self._job_id,
                kind="job.stage",
                reason=change.reason,
                data={"from": change.source, "to": change.target},
            )

    async def stage_began_at(self, stage: int) -> datetime.datetime | None:
        cursor = await self._connection.execute(
            """SELECT min(created_at) FROM trajectory_epoch WHERE job_id = %(job)s AND stage = %(stage)s
               AND number > coalesce((SELECT max(number) FROM trajectory_epoch
                                      WHERE job_id = %(job)s AND stage <> %(stage)s), -1)""",
            {"job": self._job_id, "stage": stage},
        )
        row = await cursor.fetchone()
        return None if row is None else row[0]

    async def stage_request(self) -> StageRequest:
        cursor = await self._connection.execute(
            "SELECT stage_request, stage_requested FROM jobs_job WHERE id = %s", [self._job_id]
        )
        row = await cursor.fetchone()
        return StageRequest(0, None) if row is None else StageRequest(*row)

    async def num_updates_published(self) -> int:
        cursor = await self._connection.execute(
            "SELECT published_batch FROM jobs_job WHERE id = %s", [self._job_id]
        )
        row = await cursor.fetchone()
        return 0 if row is None else int(row[0])

    async def metric_recent(self, name: str, *, window: int, since: datetime.datetime) -> list[float]:
        cursor = await self._connection.execute(
            """SELECT value FROM telemetry_metricpoint WHERE job_id = %s AND name = %s AND at >= %s
               ORDER BY step DESC LIMIT %s""",
            [self._job_id, name, since, window],
        )
        return [row[0] for row in await cursor.fetchall()]

    async def lowest_rewards(self, *, since: datetime.datetime | None) -> dict[int, float]:
        if since is None:
            return {}
        cursor = await self._connection.execute(
            f"""SELECT newest.task_index, min(s.reward) FROM (
                   SELECT DISTINCT ON (task_index) id, task_index FROM trajectory_group
                   WHERE job_id = %s AND created_at >= %s AND task_index IS NOT NULL AND state <> {_GROUP_OPEN}
                         AND num_rewarded > 0 AND evaluation_version IS NULL
                   ORDER BY task_index, index DESC) newest
               JOIN trajectory_session s ON s.group_id = newest.id AND s.state = {_SESSION_CLOSED}
                    AND s.reward IS NOT NULL
               GROUP BY newest.task_index""",
            [self._job_id, since],
        )
        return {task: float(reward) for task, reward in await cursor.fetchall()}
