"""Only one plugin decides whether a skipped test fails."""

from typing import Literal

import pytest

from tests.fixtures.repository import ROOT
from tests.fixtures.skips import skip_forbid


def skipped(*marks: str) -> pytest.TestReport:
    keywords: dict[str, Literal[1]] = dict.fromkeys(marks, 1)
    longrepr = ("test_a.py", 7, "Skipped: no second core")
    return pytest.TestReport(
        "test_a.py::test_a", ("test_a.py", 7, "test_a"), keywords, "skipped", longrepr, "setup"
    )


def test_a_skipped_test_fails_with_its_reason() -> None:
    report = skipped("slow")
    skip_forbid(report)
    assert report.failed
    assert str(report.longrepr).startswith("Skipped: no second core")


@pytest.mark.parametrize("mark", ["gpu", "needs_history"])
def test_a_test_may_be_skipped_for_what_no_ci_has(mark: str) -> None:
    report = skipped(mark)
    skip_forbid(report)
    assert report.skipped


def test_an_expected_failure_stays_one() -> None:
    report = skipped()
    report.wasxfail = "a known fault"
    skip_forbid(report)
    assert report.skipped


def test_no_other_module_reads_the_variable() -> None:
    variable = 'environ.get("C' + 'I")'
    readers = [path.name for path in (ROOT / "tests").rglob("*.py") if variable in path.read_text()]
    assert readers == ["skips.py"]
