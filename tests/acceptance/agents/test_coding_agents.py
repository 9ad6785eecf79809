"""Coding agents for the command line, from npm, unmodified: a task with tools, and a second question behind it.

They always stream. Codex speaks Responses; pi speaks whichever API its configuration names.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local.agent_clients import modules_of, node_environ
from tests.acceptance.agents.agents_world import AgentsWorld, OpenedSession, program_run
from tests.acceptance.agents.played_parts import NOTES_ANSWER, PARTS

AGAIN = "Are you sure?"
CODEX_FLAGS = (
    "--skip-git-repo-check",
    "--dangerously-bypass-approvals-and-sandbox",
    "-c",
    "model_provider=gateway",
)
PI_APIS = {
    "messages": ("anthropic-messages", "ANTHROPIC_BASE_URL"),
    "responses": ("openai-responses", "OPENAI_BASE_URL"),
    "chat": ("openai-completions", "OPENAI_BASE_URL"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder to work in, with notes. The agents' own files go beside it."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("hello 42\n")
    return folder


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("model", ["gpt-5.5", "any-other"])
async def test_codex_works_unmodified_and_joins_its_tree_cleanly(
    agents_world: AgentsWorld, require_client: Callable[[str], None], project: Path, model: str
) -> None:
    """It offers other tools for a model that it knows."""
    require_client("codex")
    session = await agents_world.open_session()
    flags = (*CODEX_FLAGS, "-c", f"model_providers.gateway={codex_provider(session)}", "-m", model)
    codex = str(modules_of("codex") / ".bin" / "codex")
    environ = node_environ() | session.environ | {"CODEX_HOME": str(codex_home(project))}
    task = "«codex» What do the notes say?"
    first = await program_run([codex, "exec", *flags, task], environ=environ, folder=project)
    second = await program_run(
        [codex, "exec", "resume", "--last", *flags, AGAIN], environ=environ, folder=project
    )

    assert (first.strip(), second.strip()) == (NOTES_ANSWER, NOTES_ANSWER)
    agents_world.check_joins(session, num_answers=len(PARTS["codex"]) + 1)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("api", PI_APIS)
async def test_pi_works_unmodified_and_joins_its_tree_cleanly(
    agents_world: AgentsWorld, require_client: Callable[[str], None], project: Path, api: str
) -> None:
    require_client("pi")
    session = await agents_world.open_session()
    home = pi_home(project, session, api)
    pi = modules_of("pi") / "@mariozechner" / "pi-coding-agent" / "dist" / "cli.js"
    command = ["node", str(pi), "--provider", "gateway", "--model", "policy"]
    environ = node_environ() | {"PI_CODING_AGENT_DIR": str(home)}
    task = "«pi» What do the notes say?"
    first = await program_run([*command, "-p", task], environ=environ, folder=project)
    second = await program_run([*command, "--continue", "-p", AGAIN], environ=environ, folder=project)

    assert (first.strip(), second.strip()) == (NOTES_ANSWER, NOTES_ANSWER)
    agents_world.check_joins(session, num_answers=len(PARTS["pi"]) + 1)


def codex_home(project: Path) -> Path:
    home = project.parent / "codex"
    home.mkdir()
    return home


def codex_provider(session: OpenedSession) -> str:
    url = session.environ["OPENAI_BASE_URL"]
    return f'{{name="gateway", base_url="{url}", env_key="OPENAI_API_KEY", wire_api="responses"}}'


def pi_home(project: Path, session: OpenedSession, api: str) -> Path:
    """Write pi's configuration, which names the gateway as a provider."""
    home = project.parent / "pi"
    home.mkdir()
    kind, url = PI_APIS[api]
    model = {"id": "policy", "name": "policy", "contextWindow": 100_000, "maxTokens": 1000}
    provider = {
        "baseUrl": session.environ[url],
        "api": kind,
        "apiKey": session.environ["OPENAI_API_KEY"],
        "models": [model],
    }
    (home / "models.json").write_text(json.dumps({"providers": {"gateway": provider}}))
    return home
