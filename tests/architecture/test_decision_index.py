"""Every note in `docs/decisions` is a row of the index, a note's number is that of its title, and references lead
somewhere: a folded note to its new address, a number in prose to a note that exists."""

import re
import subprocess
from pathlib import Path

from tests.fixtures.repository import ROOT

FOLDER = ROOT / "docs" / "decisions"
ROW = re.compile(
    r"^\| \[(\d{4})\]\((\S+)\) \| [^|]+ \| [^|]+ \| (current|superseded by \d{4})[^|]* \|$", re.MULTILINE
)
FOLDED = re.compile(r"^\| (\d{4}) \| \[[^\]]+\]\((\S+)\) \|$", re.MULTILINE)
REFERENCE = re.compile(r"decisions?\s+\[?(\d{4})|decisions/(\d{4})-", re.IGNORECASE)
# The changelog keeps the numbers of its time.
PROSE = ("*.md", "*.py", "*.ts", "*.tsx", ":!CHANGELOG.md")


def notes() -> list[Path]:
    return sorted(FOLDER.glob("[0-9]*.md"))


def index() -> str:
    return (FOLDER / "README.md").read_text()


def test_the_index_names_every_note_once_in_order() -> None:
    rows = ROW.findall(index())
    assert [(path.name[:4], path.name) for path in notes()] == [(number, name) for number, name, _ in rows]


def test_a_note_begins_with_its_number() -> None:
    for path in notes():
        assert path.read_text().startswith(f"# {path.name[:4]} "), path.name


def test_a_folded_note_has_a_new_address() -> None:
    folded = FOLDED.findall(index())
    assert [number for number, _ in folded] == sorted({number for number, _ in folded})
    assert not {number for number, _ in folded} & {path.name[:4] for path in notes()}
    assert not [address for _, address in folded if not (FOLDER / address).exists()]


def test_references_name_notes_that_exist() -> None:
    names = subprocess.run(["git", "ls-files", *PROSE], cwd=ROOT, check=True, capture_output=True, text=True)
    existing = {path.name[:4] for path in notes()}
    dead = {
        f"{name}: {first or second}"
        for name in names.stdout.split()
        if (ROOT / name).is_file()
        for first, second in REFERENCE.findall((ROOT / name).read_text())
        if (first or second) not in existing
    }
    assert not dead
