"""Named statements: constants become quoted literals, fragments are filled in, and comments are left out."""

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import pytest

from seamlessflow.runtime.sql import statements


class Tint(StrEnum):
    RED = "red"
    GREEN = "green"


@pytest.fixture
def module_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return a function that makes a package with a file of statements, and returns the name of its module."""

    def make(text: str) -> str:
        package = tmp_path / "some_package"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "rows.sql").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "some_package", raising=False)
        return "some_package.rows"

    return make


def test_members_numbers_lists_and_fragments_are_filled_in(module_of: Callable[[str], str]) -> None:
    module = module_of(
        "-- fragment: live\n-- Why.\ntint IN ({tints}) AND age < {most}\n\n"
        "-- name: all\n-- Reads 100 % of it.\nSELECT '{}', {Tint.RED}\n-- and no others\nFROM t WHERE {live}\n\n"
        "-- name: one\nSELECT %(id)s\n"
    )
    assert statements(module, Tint, tints=[Tint.RED, Tint.GREEN], most=2.5) == {
        "all": "SELECT '{}', 'red'\nFROM t WHERE tint IN ('green', 'red') AND age < 2.5",
        "one": "SELECT %(id)s",
    }


def test_an_unknown_constant_an_unused_one_and_a_caller_s_text_are_refused(
    module_of: Callable[[str], str],
) -> None:
    module = module_of("-- name: one\nSELECT {Tint.BLUE}, {word}\n")
    with pytest.raises(KeyError, match=r"Tint\.BLUE"):
        statements(module, Tint, word="word")
    with pytest.raises(ValueError, match="is no word"):
        statements(module, Tint, word="'; DROP TABLE t")
    (Path(sys.modules["some_package"].__path__[0]) / "rows.sql").write_text("-- name: one\nSELECT 1\n")
    with pytest.raises(ValueError, match=r"rows\.sql uses no Tint, word"):
        statements(module, Tint, word="word")
