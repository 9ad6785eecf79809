"""Every snippet and every command in README and docs is well-formed and names what exists.

tests/acceptance/jobs/test_snippets.py runs those that can be run.
"""

import ast
import json
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from django.core.management import get_commands

from seamlessflow.cli.main import cli
from seamlessflow.core.spec_submission import submitted_spec_parse
from tests.fixtures.repository import ROOT
from tests.fixtures.snippets import DOCUMENTS, Snippet, snippets

LANGUAGES = {"sh", "python", "yaml", "json", "toml", "text"}
SNIPPETS = snippets()
READERS: dict[str, Callable[[str], Any]] = {
    "yaml": yaml.safe_load, "json": json.loads, "toml": tomllib.loads,
}  # fmt: skip
INLINE = re.compile(r"`(seamlessflow [^`]+)`")
COMMAND = re.compile(r"seamlessflow (?:[a-z-]+|--[a-z]+)\b[^|;&)\n]*")
WHOLE_SPEC = {
    "name": "any",
    "model": {"source": "artifact://model"},
    "environment": {"name": "calculator", "tasks": "artifact://tasks"},
}


def of(*languages: str) -> "pytest.MarkDecorator":
    chosen = [snippet for snippet in SNIPPETS if snippet.language in languages]
    assert chosen
    return pytest.mark.parametrize("snippet", chosen, ids=[snippet.id for snippet in chosen])


def commands() -> Iterator[tuple[str, str]]:
    """Yield each use of the command line, with the document."""
    for document in DOCUMENTS:
        for inline in INLINE.findall(document.read_text(encoding="utf-8")):
            yield document.name, " ".join(inline.split())
    for snippet in SNIPPETS:
        if snippet.language == "sh":
            joined = snippet.code.replace("\\\n", " ")
            for line in joined.splitlines():
                for used in COMMAND.findall(line.partition("  #")[0]):
                    yield snippet.id, used


def test_every_snippet_has_a_language_and_every_exception_a_reason() -> None:
    for snippet in SNIPPETS:
        assert snippet.language in LANGUAGES, f"{snippet.id}: name its language, one of {sorted(LANGUAGES)}"
        assert snippet.not_run == "" or len(snippet.not_run) > 5, snippet.id
    for document in DOCUMENTS:
        fences = document.read_text(encoding="utf-8").count("\n```")
        assert fences == 2 * sum(s.document.endswith(document.name) for s in SNIPPETS), document.name


def test_tests_that_comments_name_exist() -> None:
    named = [path for snippet in SNIPPETS for path in re.findall(r"tests/[\w/]+(?:\.py)?", snippet.not_run)]

    assert named
    for path in named:
        assert (ROOT / path).exists(), path


@of("sh")
def test_shell_parses(snippet: Snippet) -> None:
    done = subprocess.run(["bash", "-n"], input=snippet.code, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


@of("python")
def test_python_parses(snippet: Snippet) -> None:
    compile(snippet.code, snippet.id, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@of("yaml", "json", "toml")
def test_data_parses_and_jobs_are_valid(snippet: Snippet) -> None:
    content = READERS[snippet.language](snippet.code)

    assert isinstance(content, dict)
    if snippet.language == "yaml" and not snippet.not_run:
        agents = content.get("environment", {}).get("command", [])
        agents[:] = [
            word.replace("./", "/srv/") for word in agents
        ]  # as `submit` does for files beside the spec
        submitted_spec_parse(content if content.keys() >= {"name", "model"} else {**WHOLE_SPEC, **content})


@pytest.mark.parametrize(
    "where, used", [pytest.param(*one, id=f"{one[0]} {one[1]}") for one in sorted(set(commands()))]
)
def test_commands_and_their_options_exist(where: str, used: str) -> None:
    words = used.partition(" #")[0].split()[1:]
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, f"{where}: there is no `{used}`"
        command = found
    if command.name == "manage":
        assert words[0] in {*get_commands(), "COMMAND"}, f"{where}: {used}"
        return
    known = {"--help", "--version", *(name for option in command.params for name in option.opts)}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, f"{where}: `{used}` has no {word}"


def test_commands_of_the_control_plane_exist() -> None:
    pages = [*DOCUMENTS, *(ROOT / "deploy").rglob("*.txt"), *(ROOT / "platform").rglob("*.html")]
    named = [name for page in pages for name in re.findall(r"python -m django (\w+)", page.read_text())]
    (table,) = re.findall(
        r"\n## Commands of the control plane\n(.*?)\n## ", (ROOT / "docs" / "operations.md").read_text(), re.S
    )

    assert {*named, *re.findall(r"^\| `(\w+)", table, re.M)} - {"COMMAND"} <= set(get_commands())


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    code = "\n".join(snippet.code for snippet in SNIPPETS if snippet.language == "sh")
    texts = [
        code,
        *(inline for page in DOCUMENTS for inline in re.findall(r"`(make[^`]*)`", page.read_text())),
    ]

    for target in re.findall(r"^make\s+([a-z][\w-]*)", "\n".join(texts), re.M):
        assert target in targets, f"make {target}"


def test_files_that_readers_save_have_names_without_folders() -> None:
    assert all(Path(snippet.file_name).name == snippet.file_name for snippet in SNIPPETS)
