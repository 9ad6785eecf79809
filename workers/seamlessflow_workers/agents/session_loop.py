"""A loop of an agent phase: leases groups of its kind, runs their sessions as episodes, reports each end.

Training and evaluation each have a loop with its own capacity. Invariant: this runner reports every leased session
once, and those cut short as requeued (they run again elsewhere without using up an attempt); nothing that an episode
does ends the loop.
"""

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable
from uuid import UUID

from seamlessflow.core.environment.episodes import Environment, PolicyEndpoint, Task
from seamlessflow.core.environment.output import SessionOutput
from seamlessflow.core.protocol.data_plane import GroupLeaseRequest, LeasedGroup, LeasedSession, SessionFinish
from seamlessflow_workers.agents.episode import USUAL_RULES, EpisodeRules, run_episode
from seamlessflow_workers.agents.gateway_client import RunnerClient
from seamlessflow_workers.agents.reports import Reports
from seamlessflow_workers.agents.session_logs import SessionLogSender

LEASE_WAIT_S = 10.0
RENEW_EVERY_S = 30.0  # well within a lease
# How often the gateway gets the list of the sessions here, so that it notices missing ones.
LIST_EVERY_S = 10.0
EMPTY_PAUSE_S = 0.25  # after an empty lease, because the gateway may answer at once while admission is closed
REPORT_GRACE_S = 3.0
DRAINED = "the agent runner was drained before the episode ended"


class SessionLoop:
    """Runs `max_sessions` at once. It never asks for fewer than `min_free_slots`, so that groups are leased whole."""

    def __init__(
        self,
        *,
        environment: Environment,
        client: RunnerClient,
        policy_url: str,
        timeout_s: float,
        max_sessions: int,
        min_free_slots: int,
        is_evaluation: bool,
        on_change: Callable[[], None],
        logs: SessionLogSender,
        rules: EpisodeRules = USUAL_RULES,
    ) -> None:
        self._logs = logs
        self._timeout_s, self._rules = timeout_s, rules
        self._slots = asyncio.Semaphore(max_sessions)
        # One group always fits; the slots enforce the limit.
        self._capacity = max(max_sessions, min_free_slots)
        self._min_free_slots = min_free_slots
        self._is_evaluation = is_evaluation
        self._environment = environment
        self._client = client
        self._policy_url = policy_url
        self._on_change = on_change
        self._episodes: dict[UUID, asyncio.Task[SessionFinish]] = {}
        self._listed_s = -LIST_EVERY_S  # monotonic
        self._num_running: Counter[UUID] = Counter()  # sessions by group
        self._slots_freed = asyncio.Event()
        self._reports = Reports(client, on_delivered=self._slots_freed.set)

    @property
    def is_busy(self) -> bool:
        return bool(self._episodes)

    async def lease_forever(self) -> None:
        """Lease for ever. Raises FencedOff, RequestRefused if the gateway will not serve this phase."""
        while True:
            request = await self._next_request()
            reply = await self._client.groups_lease(request, held=self._session_ids())
            for group in reply.groups:
                self._start_group(group)
            if not reply.groups:
                await asyncio.sleep(EMPTY_PAUSE_S)

    async def wind_up(self, grace_s: float) -> None:
        """Give episodes `grace_s` to end; requeue the others."""
        if self._episodes:
            await asyncio.wait(self._episodes.values(), timeout=grace_s)
        if episodes := list(self._episodes.values()):
            for episode in episodes:
                episode.cancel()
            await asyncio.wait(episodes)
        await self._reports.flush(timeout_s=REPORT_GRACE_S)

    async def _next_request(self) -> GroupLeaseRequest:
        try:
            async with asyncio.timeout(RENEW_EVERY_S):
                while self._num_free() < self._min_free_slots:
                    self._slots_freed.clear()
                    await self._slots_freed.wait()
        except TimeoutError:
            # Full for long: a request for nothing renews the leases of running sessions, even of silent agents.
            return self._request(0, wait_s=0.0)
        return self._request(self._num_free(), wait_s=LEASE_WAIT_S)

    def _request(self, max_sessions: int, *, wait_s: float) -> GroupLeaseRequest:
        listed, now_s = None, time.monotonic()
        if now_s - self._listed_s >= LIST_EVERY_S:
            self._listed_s = now_s
            listed = self._session_ids()
        return GroupLeaseRequest(
            max_sessions=max_sessions, is_evaluation=self._is_evaluation, held=listed, wait_s=wait_s
        )

    def _session_ids(self) -> list[UUID]:
        return [*self._episodes, *self._reports.session_ids]

    def _num_free(self) -> int:
        """Return how many more sessions fit. Undelivered reports count too, which bounds them while the gateway is
        away."""
        return self._capacity - len(self._episodes) - len(self._reports)

    def _start_group(self, group: LeasedGroup) -> None:
        for session in group.sessions:
            if session.session_id in self._episodes:
                continue  # it was sent twice
            episode = asyncio.create_task(self._run(group.task, session))
            self._episodes[session.session_id] = episode
            self._num_running[group.group_id] += 1
            episode.add_done_callback(functools.partial(self._on_end, group.group_id, session.session_id))
        self._on_change()

    async def _run(self, task: Task, session: LeasedSession) -> SessionFinish:
        policy = PolicyEndpoint(base_url=session.base_url or self._policy_url, api_key=session.api_key)
        async with self._slots:
            with self._logs.open(session.session_id, key=session.api_key) as output:
                return await self._run_episode(task, policy, session, output)

    async def _run_episode(
        self, task: Task, policy: PolicyEndpoint, session: LeasedSession, output: SessionOutput | None
    ) -> SessionFinish:
        return await run_episode(
            self._environment,
            task,
            policy,
            session_id=session.session_id,
            timeout_s=self._timeout_s,
            rules=self._rules,
            waited_s=self._client.session_waited_s,
            output=output,
        )

    def _on_end(self, group_id: UUID, session_id: UUID, episode: asyncio.Task[SessionFinish]) -> None:
        del self._episodes[session_id]
        self._num_running[group_id] -= 1
        is_last = not self._num_running[group_id]
        if is_last:
            del self._num_running[group_id]
        is_cut_short = episode.cancelled()
        requeued = SessionFinish(session_id=session_id, failure=DRAINED, is_requeued=True)
        finish = requeued if is_cut_short else episode.result()
        self._reports.add(finish, is_urgent=is_last or is_cut_short)
        self._on_change()
