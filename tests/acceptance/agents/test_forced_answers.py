"""Clients and frameworks from PyPI, unmodified, that demand the form of an answer or the call of a tool.

A real engine answers, with a policy that knows nothing: all that fits a form fits it because the answer was guided.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.local.agent_clients import python_of
from tests.acceptance.agents.agents_world import AgentsWorld, program_run

PROGRAMS = Path(__file__).parent / "programs"
BOTH = ("chat", "responses")
CLIENTS = [
    ("openai-2", "forced_openai", BOTH, 2),
    ("frameworks", "forced_openai", BOTH, 2),
    ("frameworks", "forced_anthropic", ("messages",), 3),
    ("frameworks", "forced_openai_agents", BOTH, 1),
    ("frameworks", "forced_pydantic_ai", (*BOTH, "messages"), 2),
]


async def results_of(
    world: AgentsWorld, environment: str, program: str, apis: tuple[str, ...], folder: Path
) -> list[dict[str, Any]]:
    """Run a program, plainly and streamed over each API; return what it told of each run."""
    runs = [(api, is_streamed, await world.open_session()) for api in apis for is_streamed in (False, True)]
    given = [{"api": api, "is_streamed": way, "environ": session.environ} for api, way, session in runs]
    said = await program_run(
        [str(python_of(environment)), str(PROGRAMS / f"{program}.py")],
        environ={},
        folder=folder,
        given=json.dumps(given),
    )
    results: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines()]
    assert [result["num_pieces"] > 0 for result in results] == [way for _, way, _ in runs]
    for _, _, session in runs:
        world.check_guided(session)
    return results


def assert_weather(answer: dict[str, Any]) -> None:
    assert list(answer) == ["city", "is_sure", "sky", "degrees"]
    assert isinstance(answer["city"], str)
    assert isinstance(answer["is_sure"], bool)
    assert answer["sky"] in ("clear", "cloudy")
    assert isinstance(answer["degrees"], int)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    "environment,program,apis,num_answers",
    CLIENTS,
    ids=[f"{program} in {name}" for name, program, *_ in CLIENTS],
)
async def test_a_client_gets_the_form_that_it_demands(
    forced_world: AgentsWorld,
    require_client: Callable[[str], None],
    tmp_path: Path,
    environment: str,
    program: str,
    apis: tuple[str, ...],
    num_answers: int,
) -> None:
    require_client(environment)
    for result in await results_of(forced_world, environment, program, apis, tmp_path):
        assert len(result["answers"]) == num_answers
        for answer in result["answers"]:
            assert_weather(answer)


@pytest.mark.asyncio(loop_scope="session")
async def test_smolagents_gets_a_call_with_every_answer(
    forced_world: AgentsWorld, require_client: Callable[[str], None], tmp_path: Path
) -> None:
    require_client("frameworks")
    for result in await results_of(forced_world, "frameworks", "forced_smolagents", ("chat",), tmp_path):
        (told,) = result["answers"]
        assert not told["errors"]
        assert set(told["called"]) <= {"look_up", "final_answer"}
        assert told["called"][-1] == "final_answer"
