"""Agent runners and trainers ↔ gateway, JSON, authenticated by a phase credential.

Runner (role agent):
  POST /runner/v1/groups/lease       GroupLeaseRequest → GroupLeaseReply (long-polls up to wait_s)
  POST /runner/v1/sessions/ended     SessionsEnded → SessionsRefused: any number of sessions have ended
  POST /runner/v1/sessions/held      SessionsHeldRequest → SessionsHeldReply: how long turns waited for an engine
Trainer (role train):
  POST /trainer/v1/batches/lease     BatchLeaseRequest → 200 with the bytes of `core.batching.format`, or 204 if
                                     none was ready within wait_s. "I have applied n and hold m more, give me
                                     n + m + 1": the same number always gives the same bytes until a durable
                                     checkpoint lies behind it.
Programs outside the platform, with an API token of the project (the key of a session opens only the policy, unless
`environment.reward_by` is `session`):
  POST /v1/sessions                  SessionOpen → 201 with SessionOpened; header `Idempotency-Key`: the same key with
                                     the same body answers 200 with the same session and key, with another body 422;
                                     429 while the job admits no new group
  POST /v1/sessions/<id>/reward      RewardReport → 204; 200 with SessionOver for a session that failed before
  POST /v1/sessions/<id>/close       {} → 204
A repeated report changes nothing; an outcome that differs from that of a closed session is refused (409).
"""

import datetime
from typing import Any
from uuid import UUID

import msgspec

from seamlessflow.core.environment.failures import FailureKind

PROTOCOL_VERSION = 2


class GroupLeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    protocol_version: int = PROTOCOL_VERSION
    max_sessions: int  # as many as the runner can take
    is_evaluation: bool = False  # held-out tasks are leased separately, so they never displace training
    # All sessions that the runner still has, including those whose end it has not reported yet; None: not stated.
    # Sessions that it lacks, because the answer to an earlier request was lost, are listed again.
    held: list[UUID] | None = None
    wait_s: float = 10.0


class LeasedSession(msgspec.Struct, frozen=True, kw_only=True):
    session_id: UUID
    slot: int  # 0 … group_size - 1
    attempt: int  # from 1; requeued attempts have numbers too, but do not count as one of the three tries
    api_key: str  # for OPENAI_API_KEY; only its hash is stored
    base_url: str = ""  # of the gateway that serves it, for OPENAI_BASE_URL; empty: the one that leased it


class LeasedGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: UUID
    index: int
    task: dict[str, Any]  # one line of the tasks file
    sessions: list[LeasedSession]  # those that have no outcome yet
    evaluation_version: int | None = None  # for held-out tasks: the version to evaluate


class GroupLeaseReply(msgspec.Struct, frozen=True, kw_only=True):
    groups: list[LeasedGroup]
    is_admission_closed: bool = False  # enough groups are in flight for the staleness bound


class SessionFinish(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an episode: its `reward`, or the `failure` that broke it (no outcome, so it runs again).

    A failure with `is_timeout` is masked: the session has no outcome and does not run again.
    """

    protocol_version: int = PROTOCOL_VERSION
    session_id: UUID
    reward: float | None = None
    failure: str | None = None
    failure_kind: FailureKind = FailureKind.AGENT  # of a failure
    is_timeout: bool = False  # the task's own timeout: an outcome, unless it is a failure
    is_requeued: bool = False  # cut short by a drain: no outcome, and not one of the three tries
    metrics: dict[str, float] = {}


class SessionsEnded(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions of one job that have ended. Reporting one again changes nothing."""

    protocol_version: int = PROTOCOL_VERSION
    finishes: list[SessionFinish]


class SessionsRefused(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions whose end was refused, each with the reason. Report only that they failed. All other ends are stored."""

    refused: dict[UUID, str] = {}


class SessionsHeldRequest(msgspec.Struct, frozen=True, kw_only=True):
    protocol_version: int = PROTOCOL_VERSION
    session_ids: list[UUID]


class SessionsHeldReply(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the turns of each session have waited for an engine so far; no task is charged for them."""

    held_s: dict[UUID, float]


class BatchLeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    protocol_version: int = PROTOCOL_VERSION
    applied_batch: int  # number of the last batch in the trainer's weights; 0 at the start
    durable_batch: int  # number of the last batch behind a durable checkpoint
    policy_version: int  # version of the trainer's weights when the step on this batch starts
    num_held: int = 0  # batches after `applied_batch` that the trainer has but has not applied yet
    wait_s: float = 10.0

    @property
    def number(self) -> int:
        """The number of the batch to lease."""
        return self.applied_batch + self.num_held + 1


class SessionOpen(msgspec.Struct, frozen=True, kw_only=True):
    job: str  # job_… identifier
    group: str | None = None  # sessions opened with the same key form a group
    task: dict[str, Any] = {}


class SessionOpened(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    api_key: str
    base_url: str
    ttl_s: float  # how long the session may be idle
    expires_at: datetime.datetime  # if it stays idle until then


class RewardReport(msgspec.Struct, frozen=True, kw_only=True):
    """A reward for the whole session. A reward for one `branch` is refused, because it would not be trained."""

    reward: float
    branch: int | None = None


class SessionOver(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a reward that came too late: the session has already failed, so the reward is not stored."""

    session: str
    state: str
    reason: str
    is_stored: bool = False
