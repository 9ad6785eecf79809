"""What a session's program prints is the output of its session, whether it succeeds, fails or is cut short."""

from uuid import UUID

import pytest

from seamlessflow.core.environment.episodes import PolicyEndpoint
from seamlessflow.core.protocol.data_plane import SessionFinish
from seamlessflow_workers.agents import starts
from seamlessflow_workers.agents.environments.command import CommandEnvironment
from seamlessflow_workers.agents.episode import run_episode
from seamlessflow_workers.agents.session_log import SessionLogBuffer

SESSION = UUID(int=1)
POLICY = PolicyEndpoint(base_url="http://127.0.0.1:1/v1", api_key="sfs_abc123_secret")


async def held_s(_session_id: UUID) -> float:
    return 0.0


async def session_of(script: str, *, timeout_s: float = 30.0) -> tuple[SessionFinish, str]:
    buffer = SessionLogBuffer(SESSION, key=POLICY.api_key, limit_bytes=4096)
    finish = await run_episode(
        CommandEnvironment(["sh", "-c", script]),
        {},
        POLICY,
        session_id=SESSION,
        timeout_s=timeout_s,
        waited_s=held_s,
        output=buffer,
    )
    buffer.complete()
    return finish, buffer.log().head.decode()


async def test_the_output_of_a_session_that_ran_is_kept() -> None:
    finish, log = await session_of("""echo "step 1"; echo "a warning" >&2; echo '{"reward": 1}'""")
    assert finish.reward == 1.0
    assert sorted(log.splitlines()) == ["a warning", "step 1", '{"reward": 1}']


async def test_the_output_of_a_session_that_failed_is_kept() -> None:
    finish, log = await session_of("echo 'no such tool' >&2; exit 3")
    assert finish.failure == "sh exited with code 3: no such tool"
    assert log == "no such tool\n"


@pytest.mark.parametrize(
    "printed, named",
    [
        ("Traceback:\\n  raise KeyError\\nKeyError: tools\\n", "KeyError: tools"),
        ("throw new Error\\nError: no tools\\n    at main\\n\\nNode.js v22.1.0\\n", "Error: no tools"),
        ("loading\\nsh: tools: not found\\n", "sh: tools: not found"),
        ("", "it printed nothing"),
    ],
)
async def test_a_failure_names_the_line_that_tells_its_cause(printed: str, named: str) -> None:
    finish, _ = await session_of(f"printf '{printed}' >&2; exit 1")
    assert finish.failure == f"sh exited with code 1: {named}"


async def test_the_output_of_a_session_that_was_cut_short_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "START_S", 60.0)  # the clock begins with the first line of output
    finish, log = await session_of("echo thinking; sleep 60", timeout_s=0.2)
    assert finish.is_timeout
    assert log == "thinking\n"


async def test_an_agent_that_prints_its_environment_does_not_show_its_key() -> None:
    finish, log = await session_of("env | grep API_KEY; env >&2; exit 1")
    assert "OPENAI_API_KEY=[key of the session]" in log
    assert POLICY.api_key not in log
    assert POLICY.api_key not in str(finish.failure)
