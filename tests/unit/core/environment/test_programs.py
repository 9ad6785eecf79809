"""A relative path in an agents' command is refused at submission, because sessions run in empty folders."""

import pytest

from seamlessflow.core.job_spec import InvalidJobSpec
from seamlessflow.core.spec_submission import submitted_spec_parse


def refusal(command: list[str]) -> str:
    environment = {"name": "command", "command": command, "tasks": "artifact://tasks"}
    try:
        submitted_spec_parse({"name": "x", "model": {"source": "artifact://m"}, "environment": environment})
    except InvalidJobSpec as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "command, named",
    [
        (["./agent"], "./agent"),
        (["bin/agent", "--fast"], "bin/agent"),
        (["python", "agent.py"], "agent.py"),
        (["/usr/bin/python3.12", "-u", "my/agent.py"], "my/agent.py"),
        (["node", "agent.mjs"], "agent.mjs"),
        (["bash", "-e", "run.sh"], "run.sh"),
        (["python3", "~/agent.py"], "~/agent.py"),
    ],
)
def test_a_program_or_script_by_a_relative_path_is_refused_by_name(command: list[str], named: str) -> None:
    assert f"environment.command: {named!r} is a relative path" in refusal(command)


@pytest.mark.parametrize(
    "command",
    [
        ["agent"],
        ["/srv/agents/agent", "tasks/one.json"],
        ["python3", "/srv/agents/agent.py"],
        ["python", "-m", "my_agent", "notes.txt"],
        ["python3", "-I", "-c", "print(1)"],
        ["bash", "-c", "cd /srv && ./agent"],
        ["node", "--experimental-vm-modules", "/srv/agent.mjs"],
        ["python"],
    ],
)
def test_what_the_machines_must_know_is_accepted(command: list[str]) -> None:
    assert refusal(command) == ""
