"""Clients and frameworks from PyPI, unmodified, with tools over several turns, plain and streamed.

Each program of the folder `programs` runs in the client's own environment. It is given one session per API and way, and
tells what it was told.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local.agent_clients import python_of
from tests.acceptance.agents.agents_world import AgentsWorld, program_run
from tests.acceptance.agents.played_parts import PARTS, WEATHER_ANSWER

PROGRAMS = Path(__file__).parent / "programs"
BOTH = ("chat", "responses")
ALL = (*BOTH, "messages")
CLIENTS = [
    ("openai-2", "openai_client", BOTH),
    ("frameworks", "openai_client", BOTH),
    ("frameworks", "anthropic_client", ("messages",)),
    ("frameworks", "litellm_client", ALL),
    ("frameworks", "openai_agents_client", BOTH),
    ("frameworks", "langchain_client", ALL),
    ("frameworks", "pydantic_ai_client", ALL),
    ("frameworks", "smolagents_client", ("code", "calls")),  # two kinds of agents, both over chat
]


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    "environment,program,apis", CLIENTS, ids=[f"{program} in {name}" for name, program, _ in CLIENTS]
)
async def test_a_client_with_tools_works_unmodified_and_joins_its_tree_cleanly(
    agents_world: AgentsWorld,
    require_client: Callable[[str], None],
    tmp_path: Path,
    environment: str,
    program: str,
    apis: tuple[str, ...],
) -> None:
    require_client(environment)
    runs = [
        (api, is_streamed, await agents_world.open_session()) for api in apis for is_streamed in (False, True)
    ]
    given = [{"api": api, "is_streamed": way, "environ": session.environ} for api, way, session in runs]
    said = await program_run(
        [str(python_of(environment)), str(PROGRAMS / f"{program}.py")],
        environ={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},  # no list of prices from elsewhere
        folder=tmp_path,
        given=json.dumps(given),
    )

    results = [json.loads(line) for line in said.splitlines()]
    assert [result["answers"] for result in results] == [[WEATHER_ANSWER, WEATHER_ANSWER]] * len(runs)
    assert [result["cities"] for result in results] == [["Bern", "Oslo", "Rome"]] * len(runs)
    assert all((result["num_pieces"] > 5) == way for result, (_, way, _) in zip(results, runs, strict=True))
    for _, _, session in runs:
        agents_world.check_joins(session, num_answers=len(PARTS["weather"]) + 1)
