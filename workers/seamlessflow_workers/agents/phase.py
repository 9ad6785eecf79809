"""An agent phase: keeps as many episodes running as the job allows until it is drained.

Groups are leased from the gateway, each session becomes an episode, each end is reported. States: leasing → winding
up → over. Invariant: every leased session is reported once by this runner, those cut short as handed back (they run
again elsewhere, without loss of a try); nothing an episode does ends the phase.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from uuid import UUID

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.protocol.child import Doing
from seamlessflow.core.protocol.data_plane import GroupLeaseRequest, LeasedGroup, LeasedSession, SessionFinish
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow_workers.agents.environments.base import Environment, PolicyEndpoint, Task
from seamlessflow_workers.agents.episode import run_episode
from seamlessflow_workers.agents.gateway_client import RunnerClient
from seamlessflow_workers.clients.http import FencedOff, RequestRefused

LEASE_WAIT_S = 10.0
RENEW_EVERY_S = 30.0  # well within a lease
EMPTY_PAUSE_S = 0.25  # after a lease that gave nothing: a closed admission may be answered at once
REPORT_GRACE_S = 3.0
DRAIN_GRACE_S = 2.0  # unless the order says otherwise
DRAINED = "the agent runner was drained before the episode ended"

logger = logging.getLogger(__name__)


class DrainSignal:
    """Asks a phase to end; episodes under way get `grace_s`."""

    def __init__(self) -> None:
        self.grace_s = DRAIN_GRACE_S
        self._event = asyncio.Event()

    def give(self, grace_s: float | None) -> None:
        self.grace_s = DRAIN_GRACE_S if grace_s is None else grace_s
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()


class AgentPhase:
    def __init__(
        self,
        *,
        spec: JobSpec,
        environment: Environment,
        client: RunnerClient,
        policy_url: str,
        report: Callable[[Doing], None],
    ) -> None:
        self._timeout_s = spec.environment.timeout_s
        self._slots = asyncio.Semaphore(spec.rollout.max_concurrent_sessions)
        # A group is leased whole, so there is always room for one; the slots keep to the limit.
        self._capacity = max(spec.rollout.max_concurrent_sessions, spec.rollout.group_size)
        self._least_room = spec.rollout.group_size
        self._environment = environment
        self._client = client
        self._policy_url = policy_url
        self._report = report
        self._episodes: dict[UUID, asyncio.Task[SessionFinish]] = {}
        self._reports: set[asyncio.Task[None]] = set()
        self._has_room = asyncio.Event()

    async def run(self, drained: DrainSignal) -> None:
        """Return once drained. Raises FencedOff, RequestRefused when the gateway will not serve this phase."""
        grace_s = 0.0
        leasing = asyncio.create_task(self._lease_forever())
        waiting = asyncio.create_task(drained.wait())
        self._report_doing()
        try:
            await asyncio.wait({leasing, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if leasing.done():
                leasing.result()
            grace_s = drained.grace_s
        finally:
            leasing.cancel()
            waiting.cancel()
            await asyncio.wait({leasing, waiting})
            await self._wind_up(grace_s)

    async def _lease_forever(self) -> None:
        while True:
            reply = await self._client.groups_lease(await self._next_request())
            for group in reply.groups:
                self._start_group(group)
            if not reply.groups:
                await asyncio.sleep(EMPTY_PAUSE_S)

    async def _next_request(self) -> GroupLeaseRequest:
        try:
            async with asyncio.timeout(RENEW_EVERY_S):
                while self._room() < self._least_room:
                    self._has_room.clear()
                    await self._has_room.wait()
        except TimeoutError:
            # Full for long. Asking for nothing renews the lease of what runs, even if no agent spoke meanwhile.
            return GroupLeaseRequest(max_sessions=0, wait_s=0.0)
        return GroupLeaseRequest(max_sessions=self._room(), wait_s=LEASE_WAIT_S)

    def _room(self) -> int:
        """Sessions whose report is not through still count: a gateway that is away bounds what piles up here."""
        return self._capacity - len(self._episodes) - len(self._reports)

    def _start_group(self, group: LeasedGroup) -> None:
        for session in group.sessions:
            if session.session_id in self._episodes:
                continue  # the answer to an earlier lease was late, not lost
            episode = asyncio.create_task(self._run(group.task, session))
            self._episodes[session.session_id] = episode
            episode.add_done_callback(functools.partial(self._on_end, session.session_id))
        self._report_doing()

    async def _run(self, task: Task, session: LeasedSession) -> SessionFinish:
        policy = PolicyEndpoint(base_url=self._policy_url, api_key=session.api_key)
        async with self._slots:
            return await run_episode(
                self._environment,
                task,
                policy,
                session_id=session.session_id,
                timeout_s=self._timeout_s,
                held_s=self._client.session_held_s,
            )

    def _on_end(self, session_id: UUID, episode: asyncio.Task[SessionFinish]) -> None:
        del self._episodes[session_id]
        is_cut_short = episode.cancelled()
        handed_back = SessionFinish(session_id=session_id, failure=DRAINED, is_handed_back=True)
        finish = handed_back if is_cut_short else episode.result()
        report = asyncio.create_task(self._report_finish(finish))
        self._reports.add(report)
        report.add_done_callback(self._on_reported)
        self._report_doing()

    def _on_reported(self, report: asyncio.Task[None]) -> None:
        self._reports.discard(report)
        self._has_room.set()

    async def _report_finish(self, finish: SessionFinish) -> None:
        try:
            await self._client.session_finish(finish)
        except (FencedOff, RequestRefused) as error:
            logger.warning("the end of session %s was not accepted: %s", finish.session_id, error)

    def _report_doing(self) -> None:
        if self._episodes:
            self._report(Doing(state=LedgerState.RUNNING_AGENTS))
        else:
            self._report(Doing(state=LedgerState.IDLE, cause=IdleCause.NO_GROUPS))

    async def _wind_up(self, grace_s: float) -> None:
        if self._episodes:
            await asyncio.wait(self._episodes.values(), timeout=grace_s)
        if episodes := list(self._episodes.values()):
            for episode in episodes:
                episode.cancel()
            await asyncio.wait(episodes)
        if not self._reports:
            return
        _, late = await asyncio.wait(self._reports, timeout=REPORT_GRACE_S)
        for report in late:
            report.cancel()
        if late:
            logger.warning("%d ends of sessions could not be reported: the gateway is away", len(late))
            await asyncio.wait(late)
