"""A gateway for agent clients, with sessions for them and a look at how their turns joined."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamlessflow.core.types.ids import IdKind, parse_id, show_id
from seamlessflow.core.types.tags import Role
from tests.acceptance.agents.played_parts import play
from tests.acceptance.agents.terse_policy import MAX_MODEL_LEN, write_terse_model
from tests.fixtures.gateway_world import GatewayWorld, database_copied, gateway_world_made
from tests.fixtures.guided_model import embedded_engine

PROGRAM_TIMEOUT_S = 90.0
STEP_S = 0.004  # between tokens; those that arrive at once would be one event of a stream
# Sessions are never rewarded here, so the job has room for all of their groups.
JOB: dict[str, Any] = {
    "environment": "external",
    "model": {"max_model_len": 262_144},  # a byte is a token, and coding agents have long prompts
    "rollout": {"group_size": 2, "groups_per_batch": 256, "max_tokens_per_turn": 1000},
}
JOINS = "SELECT drift FROM trajectory_node WHERE session_id = %s AND drift IS NOT NULL ORDER BY node_index"
ANSWERS = (
    "SELECT count(*) FROM trajectory_node WHERE session_id = %s AND finish_reason IN ('stop', 'tool_calls')"
)

GUIDED = (
    "SELECT finish_reason, flags->'guide', loss_mask FROM trajectory_node WHERE session_id = %s AND kind = 2"
)


@dataclass(frozen=True, slots=True)
class OpenedSession:
    id: str
    environ: dict[str, str]  # tells a client, by the variables that it documents, where its model is


@dataclass(slots=True)
class AgentsWorld:
    """One gateway with one job whose policy plays parts."""

    gateway: GatewayWorld
    num_sessions: int = 0

    async def open_session(self) -> OpenedSession:
        self.num_sessions += 1
        body = {"job": show_id(IdKind.JOB, self.gateway.job_id), "group": f"client {self.num_sessions}"}
        status, raw = await self.gateway.post("/v1/sessions", body, self.gateway.api_token)
        assert status == 201, raw
        opened = json.loads(raw)
        key, url = opened["api_key"], opened["base_url"]
        environ = {
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": key,
            "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": key,
            "GOOGLE_GEMINI_BASE_URL": url.removesuffix("/v1"),
            "GEMINI_API_KEY": key,
        }
        return OpenedSession(opened["session"], environ)

    def check_joins(self, session: OpenedSession, *, num_answers: int) -> None:
        """Check that a session has these answers, all in one tree that every turn joined cleanly."""
        key = [parse_id(IdKind.SESSION, session.id)]
        joins = [drift for (drift,) in self.gateway.sql(JOINS, key)]
        assert self.gateway.sql(ANSWERS, key) == [(num_answers,)]
        assert joins == ["clean"] * num_answers

    def check_guided(self, session: OpenedSession) -> None:
        """Check that every answer of a session ended by itself, was guided, and is trained."""
        answers = self.gateway.sql(GUIDED, [parse_id(IdKind.SESSION, session.id)])
        assert answers
        for finish_reason, guide, loss_mask in answers:
            assert finish_reason in ("stop", "tool_calls")
            assert guide is not None
            assert loss_mask is None


@asynccontextmanager
async def forced_world_made(
    template: str, services: dict[str, str], folder: Path
) -> AsyncIterator[AgentsWorld]:
    """One gateway and an embedded engine, whose answers have no form but the one that a client demands."""
    with database_copied(template) as url:
        async with gateway_world_made(url, services, folder) as gateway:
            gateway.write_model = write_terse_model
            gateway.make_job(**JOB | {"model": {"max_model_len": MAX_MODEL_LEN}})
            async with embedded_engine(folder / "model", max_model_len=MAX_MODEL_LEN) as engine:
                gateway.make_phase(Role.ROLLOUT, endpoint=engine, version=0)
                await gateway.start_gateway()
                gateway.make_token()
                yield AgentsWorld(gateway)


@asynccontextmanager
async def agents_world_made(
    template: str, services: dict[str, str], folder: Path
) -> AsyncIterator[AgentsWorld]:
    with database_copied(template) as url:
        async with gateway_world_made(url, services, folder) as gateway:
            (engine,) = await gateway.start_engines(play, **JOB)
            engine.step_s = STEP_S
            gateway.make_token()
            yield AgentsWorld(gateway)


async def program_run(
    command: Sequence[str],
    *,
    environ: dict[str, str],
    folder: Path,
    given: str = "",
    is_failing: bool = False,
) -> str:
    """Run a program to its end and return what it printed. Fails the test unless it fails as it should, or not."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=without_addresses() | environ,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PROGRAM_TIMEOUT_S):
            said, errors = await process.communicate(given.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert bool(process.returncode) == is_failing, f"{said.decode()[-2000:]}\n{errors.decode()[-4000:]}"
    return said.decode()


def without_addresses() -> dict[str, str]:
    """Return this process's environment without Python's path and what else would lead a client elsewhere."""
    foreign = ("PYTHON", "OPENAI_", "ANTHROPIC_", "CODEX_", "PI_", "GOOGLE_", "GEMINI_", "CLAUDE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
