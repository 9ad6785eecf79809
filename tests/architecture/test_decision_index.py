"""Every note in `docs/decisions` is a row of the index, and a note's number is that of its title."""

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "decisions"
ROW = re.compile(
    r"^\| \[(\d{4})\]\((\S+)\) \| [^|]+ \| [^|]+ \| (holds|superseded by \d{4})[^|]* \|$", re.MULTILINE
)


def test_the_index_names_every_note_once_in_order() -> None:
    rows = ROW.findall((FOLDER / "README.md").read_text())
    names = sorted(path.name for path in FOLDER.glob("[0-9]*.md"))
    assert [(name[:4], name) for name in names] == [(number, name) for number, name, _ in rows]


def test_a_note_begins_with_its_number() -> None:
    for path in FOLDER.glob("[0-9]*.md"):
        assert path.read_text().startswith(f"# {path.name[:4]} "), path.name
