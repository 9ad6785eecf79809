"""Limits of size and style that the linters do not check."""

import ast
from pathlib import Path

import pytest

from tests.fixtures.repository import ROOT

MAX_FUNCTION_LINES = 80
MAX_MODULE_LINES = 400
SOURCES = sorted(
    path
    for root in ("platform", "workers", "deploy")
    for path in (ROOT / root).rglob("*.py")
    if "migrations" not in path.parts
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_modules_and_their_functions_stay_short(path: Path) -> None:
    source = path.read_text()
    functions = [
        n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    too_long = [f.name for f in functions if (f.end_lineno or 0) - f.lineno >= MAX_FUNCTION_LINES]
    assert too_long == []
    assert len(source.splitlines()) <= MAX_MODULE_LINES
