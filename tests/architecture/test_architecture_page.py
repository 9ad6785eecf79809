"""docs/architecture.md stays short and true: each path that it names exists. No page has a conflict's marks."""

import re
from pathlib import PurePosixPath

from tests.fixtures.repository import ROOT

MAX_WORDS = 5000
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PATH = re.compile(r"`([a-z_]+(?:/[a-z_]+)+(?:\.[a-z]+)?)/?`")
FOLDERS = ("platform", "workers", "frontend/src", "tests", "deploy", "docs", "api_schema")


def known_paths() -> set[str]:
    """Return each run of path components, the last without its suffix and with it."""
    known: set[str] = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            relative = PurePosixPath(path.relative_to(ROOT))
            for one in (relative, relative.with_suffix("")):
                known.update("/".join(one.parts[start:]) for start in range(len(one.parts)))
    return known


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= MAX_WORDS


def test_paths_that_the_page_names_exist() -> None:
    named = set(PATH.findall(PAGE))
    assert len(named) > 60
    assert sorted(named - known_paths()) == []


def test_no_page_has_the_marks_of_a_conflict() -> None:
    marks = re.compile(r"^(<{7} |={7}$|>{7} )", re.MULTILINE)
    assert not [path.name for path in (ROOT / "docs").rglob("*.md") if marks.search(path.read_text())]
