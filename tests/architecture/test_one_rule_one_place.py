"""Rules that used to exist in several places stay in one: their readers use the value that contains
the rule."""

import re
from pathlib import Path

import pytest

from tests.fixtures.repository import ROOT

PLATFORM = ROOT / "platform" / "seamlessflow"
WORKERS = ROOT / "workers" / "seamlessflow_workers"
# Rule, what breaks it, and the files that may: where the value is declared or made.
RULES = {
    "the stored spec of a job is read as Job.resolved_spec": (
        re.compile(r"""\.spec(?:_submitted)?\[|spec\[["']"""),
        {PLATFORM / "cli" / "demo.py"},  # reads a document that it has just written
    ),
    "arithmetic on the staleness bound is in StalenessBound": (
        re.compile(r"[-+*/<>]=? *\(?[\w.]*max_staleness\b|\bmax_staleness\b *\)? *[-+*/<>]"),
        {PLATFORM / "core" / "algorithms" / "staleness_bound.py"},
    ),
}


def sources() -> list[Path]:
    return [path for folder in (PLATFORM, WORKERS) for path in sorted(folder.rglob("*.py"))]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_in_one_place_only(rule: str) -> None:
    pattern, exempt = RULES[rule]

    broken = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources()
        if path not in exempt
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]

    assert not broken, "\n".join(broken)
