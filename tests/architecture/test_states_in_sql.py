"""Statements name states by the members of core's enums, and change them according to the tables of
core/lifecycle."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from seamlessflow.core.lifecycle import groups, jobs, phases
from tests.fixtures.repository import ROOT

PLATFORM = ROOT / "platform" / "seamlessflow"
STATES = {
    member.value
    for module in (groups, jobs, phases)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, StrEnum)
    for member in kind
}
SQL = re.compile(r"\b(SELECT|UPDATE|INSERT INTO|DELETE FROM|WHERE|VALUES|FILTER|JOIN|AND state)\b")
STATE_SET = re.compile(r"\bUPDATE\s+\w+(\s+\w+)?\s+SET\s+state\s*=")
# Words of a statement that are no states: reasons why a session is left out of a dataset.
OTHER_WORDS = {"control_plane/jobs/submission/datasets.sql": 2}


def sources(plane: str, kind: str = "py") -> list[Path]:
    return [path for path in sorted((PLATFORM / plane).rglob(f"*.{kind}")) if "migrations" not in path.parts]


def statements(tree: ast.AST) -> Iterator[str]:
    """Yield the strings that contain SQL; for an f-string, its text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
            # A part that looks like SQL by itself was counted above.
            if SQL.search(text):
                yield from (
                    str(part.value)
                    for part in node.values
                    if isinstance(part, ast.Constant) and not SQL.search(str(part.value))
                )


def with_statements(path: Path, text: str) -> str:
    """Return the text of a function with the named statements that it runs."""
    named = path.with_suffix(".sql").read_text() if 'SQL["' in text else ""
    blocks = dict(re.findall(r"^-- name: (\w+)\n(.*?)(?=^-- name|\Z)", named, re.MULTILINE | re.DOTALL))
    return "\n".join([text, *(blocks[name] for name in re.findall(r'SQL\["(\w+)"\]', text))])


def literals(plane: str) -> Counter[str]:
    """Count the states that each file's statements name as text."""
    found: Counter[str] = Counter()
    for path in (*sources(plane), *sources(plane, "sql")):
        texts = statements(ast.parse(path.read_text())) if path.suffix == ".py" else [path.read_text()]
        for text in texts:
            number = sum(word in STATES for word in re.findall(r"'([a-z_]+)'", text))
            if number:
                found[path.relative_to(PLATFORM).as_posix()] += number
    return found


@pytest.mark.parametrize("plane", ["control_plane", "data_plane"])
def test_no_statement_names_a_state_as_text(plane: str) -> None:
    found = {path: number for path, number in literals(plane).items() if number != OTHER_WORDS.get(path)}
    assert found == {}, "take the state from its enum in core/lifecycle"


def test_every_move_of_a_state_by_the_gateway_goes_through_its_table() -> None:
    moves = {
        f"{path.name}: {function.name}": "_MOVES.check(" in text
        for path in sources("data_plane")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.AsyncFunctionDef)
        and (text := with_statements(path, ast.get_source_segment(path.read_text(), function) or ""))
        and STATE_SET.search(text)
    }
    assert len(moves) >= 8, "the pattern finds the moves no more"
    assert [function for function, is_checked in moves.items() if not is_checked] == []
