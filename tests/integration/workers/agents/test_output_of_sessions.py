"""What a session's program printed is in the log of the agents, whether it succeeded, failed or was cut short."""

import logging
from uuid import UUID

import pytest

from seamlessflow.core.environment.episodes import BrokenEpisode, PolicyEndpoint
from seamlessflow_workers.agents import starts
from seamlessflow_workers.agents.environments.command import CommandEnvironment
from seamlessflow_workers.agents.episode import run_episode

POLICY = PolicyEndpoint(base_url="http://127.0.0.1:1/v1", api_key="sfs_abc123_secret")


def agent(script: str) -> CommandEnvironment:
    return CommandEnvironment(["sh", "-c", script])


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "seamlessflow_workers")
    return caplog


async def test_the_output_of_a_session_that_ran_is_kept(log: pytest.LogCaptureFixture) -> None:
    await agent("""echo "step 1"; echo "a warning" >&2; echo '{"reward": 1}'""").run({}, POLICY)
    assert "output of session ses_abc123:\nstep 1" in log.text
    assert "errors of session ses_abc123:\na warning" in log.text


async def test_the_output_of_a_session_that_failed_is_kept(log: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BrokenEpisode):
        await agent("echo 'no such tool' >&2; exit 3").run({}, POLICY)
    assert "errors of session ses_abc123:\nno such tool" in log.text


async def test_the_output_of_a_session_that_was_cut_short_is_kept(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "START_S", 60.0)  # the clock begins with the first line of output

    async def held_s(session_id: UUID) -> float:
        return 0.0

    finish = await run_episode(
        agent("echo thinking; sleep 60"), {}, POLICY, session_id=UUID(int=1), timeout_s=0.2, held_s=held_s
    )
    assert finish.is_timeout
    assert "output of session ses_abc123:\nthinking" in log.text
