"""Coding agents for the command line, from npm, unmodified: a task with tools, and a second question behind it.

They always stream. Codex speaks Responses, Gemini CLI Google's API, Claude Code Messages; pi speaks whichever API its
configuration names.
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


@pytest.mark.asyncio(loop_scope="session")
async def test_gemini_cli_works_unmodified_and_joins_its_tree_cleanly(
    agents_world: AgentsWorld, require_client: Callable[[str], None], project: Path
) -> None:
    require_client("gemini-cli")
    session = await agents_world.open_session()
    cli = modules_of("gemini-cli") / "@google" / "gemini-cli" / "bundle" / "gemini.js"
    command = ["node", str(cli), "--model", "gemini-2.5-pro", "--approval-mode", "yolo"]
    environ = node_environ() | session.environ | {"HOME": str(gemini_home(project))}
    task = "«gemini» What do the notes say?"
    first = await program_run([*command, "-p", task], environ=environ, folder=project)
    second = await program_run([*command, "--resume", "latest", "-p", AGAIN], environ=environ, folder=project)

    assert [said.strip().endswith(NOTES_ANSWER) for said in (first, second)] == [True, True]
    agents_world.check_joins(session, num_answers=len(PARTS["gemini"]) + 1)


@pytest.mark.asyncio(loop_scope="session")
async def test_claude_code_knows_that_its_context_is_full(
    agents_world: AgentsWorld, require_client: Callable[[str], None], project: Path
) -> None:
    """It knows it by the words of the error, and would compact a conversation."""
    require_client("claude-code")
    session = await agents_world.open_session()
    claude = modules_of("claude-code") / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"
    own = {"CLAUDE_CONFIG_DIR": str(project.parent), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    said = await program_run(
        ["node", str(claude), "-p", "--model", "claude-sonnet-4-5"],
        environ=node_environ() | session.environ | own,
        folder=project,
        given="«weather» " + "word " * 70_000,
        is_failing=True,
    )

    assert said.startswith("Prompt is too long")


def gemini_home(project: Path) -> Path:
    """Write the settings of Gemini CLI: how it signs in, and that it sends nothing elsewhere."""
    home = project.parent / "gemini"
    (home / ".gemini").mkdir(parents=True)
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))
    return home


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
