"""The agent runner as the supervisor sees it: a process, a socket, a gateway that may go away."""

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from seamlessflow.core.protocol.child import (
    Begin,
    Doing,
    Drain,
    Ended,
    Failed,
    FromChild,
    Ready,
    Renew,
    ToChild,
    decode_from_child,
    encode_line,
)
from seamlessflow.core.protocol.worker import PhaseOrder, WarmProcess, WeightsReference
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.core.types.tags import Role
from tests.fixtures.repository import ROOT
from tests.fixtures.runner_gateway import CREDENTIAL, FakeGateway, group_of, running_gateway, until

TASK = {"question": "What is 285*966?", "answer": "275310"}
JOB, PROJECT = uuid4(), uuid4()
WEIGHTS = WeightsReference(version=0, uri="file:///none")


class RunnerProcess:
    """The supervisor's end of the control socket."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.process = process
        self.heard: list[FromChild] = []
        self._reader = reader
        self._writer = writer
        self._listener = asyncio.create_task(self._listen())

    def say(self, message: ToChild) -> None:
        self._writer.write(encode_line(message))

    async def begin(self) -> UUID:
        order = PhaseOrder(
            phase_id=uuid4(), fence=1, role=Role.AGENT, job_id=JOB, project_id=PROJECT, is_draining=False,
            credential=CREDENTIAL, front_token="", weights=WEIGHTS,
        )  # fmt: skip
        self.say(Begin(order=order))
        return order.phase_id

    async def hears(self, message: FromChild, *, timeout_s: float = 30.0) -> None:
        await until(lambda: message in self.heard, what=f"{message} in {self.heard}", timeout_s=timeout_s)

    async def drain(self, phase_id: UUID) -> None:
        self.say(Drain(phase_id=phase_id))
        await self.hears(Ended(phase_id=phase_id, reason="drained"))

    def hang_up(self) -> None:
        self._writer.close()

    async def close(self) -> None:
        self.hang_up()
        async with asyncio.timeout(15):
            await self.process.wait()
        await self._listener

    async def _listen(self) -> None:
        with contextlib.suppress(ConnectionError):  # the process is gone
            while line := await self._reader.readline():
                self.heard.append(decode_from_child(line))


@contextlib.asynccontextmanager
async def running_runner(
    gateway: FakeGateway,
    folder: Path,
    *,
    environment: dict[str, Any] | None = None,
    evaluation: dict[str, Any] | None = None,
    **rollout: int,
) -> AsyncIterator[RunnerProcess]:
    spec = {
        "name": "test",
        "model": {"source": "/models/example"},
        "environment": environment or {"name": "calculator", "tasks": "tasks.jsonl", "max_turns": 3},
        "rollout": {"group_size": 4, "max_concurrent_sessions": 8, **rollout},
        "evaluation": evaluation or {},
    }
    warm_process = WarmProcess(
        job_id=JOB, project_id=PROJECT, role=Role.AGENT, spec=spec, model_path="/models/example", weights=WEIGHTS,
        artifact_root="file:///none", gateway_url=gateway.url, control_plane_url="http://127.0.0.1:9",
    )  # fmt: skip
    path = folder / "warm_process.json"
    path.write_bytes(msgspec.json.encode(warm_process))
    ours, theirs = socket.socketpair()
    with theirs:
        arguments = ("--control-fd", str(theirs.fileno()), "--warm-process", str(path))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "seamlessflow_workers.agents", *arguments),
            pass_fds=(theirs.fileno(),),
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT / 'workers'}"},
        )
    runner = RunnerProcess(process, *await asyncio.open_unix_connection(sock=ours))
    try:
        await runner.hears(Ready())
        yield runner
    finally:
        await runner.close()


def add_groups(gateway: FakeGateway, num_groups: int, *, num_sessions: int = 4) -> set[UUID]:
    groups = [group_of(TASK, num_sessions=num_sessions) for _ in range(num_groups)]
    gateway.groups.extend(groups)
    return {session.session_id for group in groups for session in group.sessions}


async def all_finished(gateway: FakeGateway, sessions: set[UUID]) -> None:
    await until(
        lambda: gateway.outcomes().keys() >= sessions,
        what=f"all {len(sessions)} sessions are reported, {len(gateway.finished)} were",
    )


async def test_every_leased_session_is_run_and_reported_once(tmp_path: Path) -> None:
    async with running_gateway() as gateway, running_runner(gateway, tmp_path) as runner:
        sessions = add_groups(gateway, 6)
        phase_id = await runner.begin()
        await all_finished(gateway, sessions)
        assert {finish.reward for finish in gateway.finished} == {1.0}
        assert len(gateway.finished) == len(sessions) == len(set(gateway.keys_seen))
        await runner.drain(phase_id)
        states = [message.state for message in runner.heard if isinstance(message, Doing)]
        assert states[:2] == [LedgerState.IDLE, LedgerState.RUNNING_AGENTS]
        assert states[-1] is LedgerState.IDLE
        assert all(one is not other for one, other in itertools.pairwise(states))


async def test_the_next_phase_runs_on_the_same_process(tmp_path: Path) -> None:
    async with running_gateway() as gateway, running_runner(gateway, tmp_path) as runner:
        for _ in range(2):
            sessions = add_groups(gateway, 1)
            phase_id = await runner.begin()
            await all_finished(gateway, sessions)
            await runner.drain(phase_id)


async def test_no_more_episodes_run_at_once_than_the_job_allows(tmp_path: Path) -> None:
    async with (
        running_gateway() as gateway,
        running_runner(gateway, tmp_path, max_concurrent_sessions=3) as runner,
    ):
        gateway.answer_delay_s = 0.05
        sessions = add_groups(gateway, 3)
        await runner.begin()
        await all_finished(gateway, sessions)
        assert gateway.max_open == 3


async def test_held_out_tasks_run_beside_a_full_house_in_room_of_their_own(tmp_path: Path) -> None:
    evaluation = {"tasks": "held_out.jsonl", "samples_per_task": 2, "max_concurrent_sessions": 2}
    async with (
        running_gateway() as gateway,
        running_runner(gateway, tmp_path, evaluation=evaluation, max_concurrent_sessions=4) as runner,
    ):
        gateway.answer_delay_s = 60.0
        training = add_groups(gateway, 2)
        gateway.held_out.extend(group_of(TASK, num_sessions=2) for _ in range(2))
        held_out = {session.session_id for group in gateway.held_out for session in group.sessions}
        phase_id = await runner.begin()
        await until(lambda: gateway.num_open == 6, what="four episodes of training and two of held-out tasks")
        assert (len(gateway.groups), len(gateway.held_out)) == (1, 1), "neither takes the other's room"
        await runner.drain(phase_id)
        reported = gateway.outcomes().keys()
        assert (len(reported & training), len(reported & held_out)) == (4, 2)
        assert gateway.max_open == 6


async def test_a_gateway_restart_loses_no_session(tmp_path: Path) -> None:
    async with running_gateway() as gateway, running_runner(gateway, tmp_path) as runner:
        gateway.answer_delay_s = 0.3
        sessions = add_groups(gateway, 4)
        await runner.begin()
        await until(
            lambda: len(gateway.finished) >= 2 and gateway.num_open > 0,
            what="some sessions are through, some in the middle of a turn",
        )
        await gateway.stop()
        await gateway.start()
        await all_finished(gateway, sessions)
        assert {finish.reward for finish in gateway.outcomes().values()} == {1.0}
        assert gateway.num_retries > 0


async def test_a_crashing_agent_is_a_failure_and_the_runner_goes_on(tmp_path: Path) -> None:
    source = 'import os, sys; sys.exit(3) if "crash" in os.environ["SEAMLESSFLOW_TASK"] else print(\'{"reward": 1}\')'
    environment = {"name": "command", "tasks": "tasks.jsonl", "command": [sys.executable, "-I", "-c", source]}
    async with (
        running_gateway() as gateway,
        running_runner(gateway, tmp_path, environment=environment) as runner,
    ):
        crashing, sound = group_of({"q": "crash"}, num_sessions=1), group_of({"q": "live"}, num_sessions=1)
        gateway.groups.extend([crashing, sound])
        await runner.begin()
        broken, whole = crashing.sessions[0].session_id, sound.sessions[0].session_id
        await all_finished(gateway, {broken, whole})
        assert gateway.outcomes()[whole].reward == 1.0
        assert gateway.outcomes()[broken].reward is None
        assert "exited with code 3" in (gateway.outcomes()[broken].failure or "")


async def test_draining_cuts_long_episodes_short_and_hands_them_back(tmp_path: Path) -> None:
    async with running_gateway() as gateway, running_runner(gateway, tmp_path) as runner:
        gateway.answer_delay_s = 60.0
        sessions = add_groups(gateway, 1)
        phase_id = await runner.begin()
        await until(lambda: gateway.num_open == 4, what="the episodes run")
        await runner.drain(phase_id)
        assert gateway.outcomes().keys() == sessions
        assert {(finish.reward, finish.is_requeued) for finish in gateway.finished} == {(None, True)}
        assert all("drained" in (finish.failure or "") for finish in gateway.finished)
        await until(lambda: gateway.num_open == 0, what="the requests are given up")


async def test_a_drain_with_a_longer_grace_lets_episodes_end(tmp_path: Path) -> None:
    async with running_gateway() as gateway, running_runner(gateway, tmp_path) as runner:
        gateway.answer_delay_s = 2.0  # twice: longer than a drain without a word about it gives
        sessions = add_groups(gateway, 1)
        phase_id = await runner.begin()
        await until(lambda: gateway.num_open == 4, what="the episodes run")
        runner.say(Drain(phase_id=phase_id, grace_s=30.0))
        await runner.hears(Ended(phase_id=phase_id, reason="drained"))
        assert gateway.outcomes().keys() == sessions
        assert {finish.reward for finish in gateway.finished} == {1.0}


async def test_a_renewed_credential_is_presented_from_then_on(tmp_path: Path) -> None:
    async with running_gateway() as gateway, running_runner(gateway, tmp_path) as runner:
        gateway.answer_delay_s = 0.5
        sessions = add_groups(gateway, 1)
        phase_id = await runner.begin()
        await until(lambda: gateway.num_open == 4, what="the episodes run")
        runner.say(Renew(phase_id=phase_id, credential="sfp_fresh"))
        gateway.credential = "sfp_fresh"
        await all_finished(gateway, sessions)


async def test_time_that_the_gateway_held_a_session_is_no_time_of_the_task(tmp_path: Path) -> None:
    environment = {"name": "calculator", "tasks": "tasks.jsonl", "max_turns": 3, "timeout_s": 1}
    async with (
        running_gateway() as gateway,
        running_runner(gateway, tmp_path, environment=environment) as runner,
    ):
        gateway.answer_delay_s, gateway.held_s = 1.5, 30.0
        held = add_groups(gateway, 1)
        phase_id = await runner.begin()
        await all_finished(gateway, held)
        assert {(finish.reward, finish.is_timeout) for finish in gateway.finished} == {(1.0, False)}

        gateway.held_s = 0.0
        slow = add_groups(gateway, 1)
        await all_finished(gateway, slow)
        assert {gateway.outcomes()[session].is_timeout for session in slow} == {True}
        await runner.drain(phase_id)


async def test_draining_ends_even_when_the_gateway_is_away(tmp_path: Path) -> None:
    async with running_gateway() as gateway, running_runner(gateway, tmp_path) as runner:
        gateway.answer_delay_s = 60.0
        add_groups(gateway, 1)
        phase_id = await runner.begin()
        await until(lambda: gateway.num_open == 4, what="the episodes run")
        await gateway.stop()
        await runner.drain(phase_id)


async def test_the_process_ends_with_its_control_socket(tmp_path: Path) -> None:
    async with running_gateway() as gateway, running_runner(gateway, tmp_path) as runner:
        gateway.answer_delay_s = 60.0
        add_groups(gateway, 1)
        await runner.begin()
        await until(lambda: gateway.num_open == 4, what="the episodes run")
        runner.hang_up()
        async with asyncio.timeout(10):
            assert await runner.process.wait() == 0


@pytest.mark.parametrize(
    "status,expected",
    [
        (401, lambda phase_id, url: Failed(
            phase_id=phase_id,
            reason=f"{url}/runner/v1/groups/lease refused the request with status 401: not your phase",
        )),
        (409, lambda phase_id, url: Ended(phase_id=phase_id, reason="fenced off: not your phase")),
    ],
)  # fmt: skip
async def test_a_gateway_that_refuses_the_phase_ends_it(tmp_path: Path, status: int, expected: Any) -> None:
    async with running_gateway() as gateway, running_runner(gateway, tmp_path) as runner:
        gateway.lease_status = status
        phase_id = await runner.begin()
        await runner.hears(expected(phase_id, gateway.url))


async def test_an_idle_runner_says_why_it_idles(tmp_path: Path) -> None:
    async with running_gateway() as gateway, running_runner(gateway, tmp_path) as runner:
        await runner.begin()
        await runner.hears(Doing(state=LedgerState.IDLE, cause=IdleCause.NO_GROUPS))
