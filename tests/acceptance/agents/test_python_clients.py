"""Clients and frameworks from PyPI and npm, unmodified, with tools over several turns, plain and streamed.

Each program of the folder `programs` runs in the client's own environment. It is given one session per API and way, and
tells what it was told.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local.agent_clients import modules_of, node_environ, python_of
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
    ("kept-conversations", "google_genai_client", ("gemini",)),
    ("kept-conversations", "google_adk_client", ("gemini",)),
    ("kept-conversations", "agent_framework_client", ("responses",)),
    ("kept-conversations", "semantic_kernel_client", ("responses",)),
    ("ai-sdk", "ai_sdk_client", ("responses",)),
    ("frameworks", "smolagents_client", ("code", "calls")),  # two kinds of agents, both over chat
]
# Plain, it sends its question and the text beside calls again with what it names, so the policy takes that for its
# second answer and goes on to the last.
SENDING_AGAIN = "semantic_kernel_client"


def command_of(environment: str, program: str, folder: Path) -> list[str]:
    """Return what runs a program in an environment. Node looks for packages above the program's own folder."""
    if (PROGRAMS / f"{program}.py").exists():
        return [str(python_of(environment)), str(PROGRAMS / f"{program}.py")]
    (folder / "node_modules").symlink_to(modules_of(environment))
    return ["node", shutil.copy(str(PROGRAMS / f"{program}.mjs"), str(folder))]


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
        command_of(environment, program, tmp_path),
        environ=node_environ() | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},  # no list of prices from elsewhere
        folder=tmp_path,
        given=json.dumps(given),
    )

    results = [json.loads(line) for line in said.splitlines()]
    assert [result["answers"] for result in results] == [[WEATHER_ANSWER, WEATHER_ANSWER]] * len(runs)
    all_cities, nearer = ["Bern", "Oslo", "Rome"], ["Oslo", "Rome"]
    expected = [
        nearer if program == SENDING_AGAIN and not is_streamed else all_cities for _, is_streamed, _ in runs
    ]
    assert [result["cities"] for result in results] == expected
    assert all((result["num_pieces"] > 5) == way for result, (_, way, _) in zip(results, runs, strict=True))
    for cities, (_, _, session) in zip(expected, runs, strict=True):
        num_skipped = len(all_cities) - len(cities)
        agents_world.check_joins(session, num_answers=len(PARTS["weather"]) + 1 - num_skipped)
