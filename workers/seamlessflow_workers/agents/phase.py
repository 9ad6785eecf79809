"""An agent phase: keeps as many episodes running as the job allows until it is drained.

States: leasing → winding up → over. Training and, if the job has held-out tasks, evaluation are leased in separate
loops (`session_loop`), so neither waits for slots that the other takes.
"""

import asyncio
from collections.abc import Callable

from seamlessflow.core.environment.episodes import Environment
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.protocol.child import Doing
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow_workers.agents.episode import EpisodeRules
from seamlessflow_workers.agents.gateway_client import RunnerClient
from seamlessflow_workers.agents.session_logs import SessionLogSender
from seamlessflow_workers.agents.session_loop import SessionLoop

DRAIN_GRACE_S = 2.0  # unless the order says otherwise


class DrainSignal:
    """Asks a phase to end; running episodes get `grace_s`."""

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
        self._report = report
        self._logs = SessionLogSender(
            client.session_logs_send, limit_bytes=spec.environment.session_log_bytes
        )

        def loop(*, max_sessions: int, min_free_slots: int, is_evaluation: bool) -> SessionLoop:
            return SessionLoop(
                environment=environment,
                client=client,
                policy_url=policy_url,
                timeout_s=spec.environment.timeout_s,
                rules=EpisodeRules.of(spec.environment),
                max_sessions=max_sessions,
                min_free_slots=min_free_slots,
                is_evaluation=is_evaluation,
                on_change=self._report_doing,
                logs=self._logs,
            )

        rollout, evaluation = spec.rollout, spec.evaluation
        self._loops = [
            loop(
                max_sessions=rollout.max_concurrent_sessions,
                min_free_slots=rollout.group_size,
                is_evaluation=False,
            )
        ]
        if evaluation.is_on:
            self._loops.append(
                loop(
                    max_sessions=evaluation.max_concurrent_sessions,
                    min_free_slots=evaluation.samples_per_task,
                    is_evaluation=True,
                )
            )

    async def run(self, drained: DrainSignal) -> None:
        """Return once drained. Raises FencedOff, RequestRefused if the gateway will not serve this phase."""
        async with self._logs:
            await self._lease_until(drained)

    async def _lease_until(self, drained: DrainSignal) -> None:
        grace_s = 0.0
        leasing = [asyncio.create_task(loop.lease_forever()) for loop in self._loops]
        waiting = asyncio.create_task(drained.wait())
        self._report_doing()
        try:
            await asyncio.wait({*leasing, waiting}, return_when=asyncio.FIRST_COMPLETED)
            for task in leasing:
                if task.done():
                    task.result()
            grace_s = drained.grace_s
        finally:
            for task in (*leasing, waiting):
                task.cancel()
            await asyncio.wait({*leasing, waiting})
            await asyncio.gather(*(loop.wind_up(grace_s) for loop in self._loops))

    def _report_doing(self) -> None:
        if any(loop.is_busy for loop in self._loops):
            self._report(Doing(state=LedgerState.RUNNING_AGENTS))
        else:
            self._report(Doing(state=LedgerState.IDLE, cause=IdleCause.NO_GROUPS))
