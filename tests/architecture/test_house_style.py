"""Limits of size and style that the linters do not check."""

import ast
from pathlib import Path

from tests.fixtures.repository import ROOT

MAX_FUNCTION_LINES = 80
MAX_MODULE_LINES = 400
SOURCES = sorted(
    path
    for root in ("platform", "workers", "deploy")
    for path in (ROOT / root).rglob("*.py")
    if "migrations" not in path.parts
)


def test_modules_and_their_functions_stay_short() -> None:
    assert len(SOURCES) > 100
    assert [fault for path in SOURCES for fault in too_long(path)] == []


def too_long(path: Path) -> list[str]:
    """Return the names of functions that are too long, and of the module if it is."""
    name, source = str(path.relative_to(ROOT)), path.read_text()
    functions = [
        n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    faults = [f"{name}: {f.name}" for f in functions if (f.end_lineno or 0) - f.lineno >= MAX_FUNCTION_LINES]
    return [*faults, name] if len(source.splitlines()) > MAX_MODULE_LINES else faults
