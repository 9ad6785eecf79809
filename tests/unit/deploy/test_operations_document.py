"""docs/operations.md says in bold what does not isolate agents from one another."""

import re

import pytest

from tests.fixtures.repository import ROOT

DOCUMENT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "said", ["Not isolated", "The network", "memory, disk", "The kernel", "reward", "agents run as its user"]
)
def test_the_limits_of_isolation_between_agents_are_in_bold(said: str) -> None:
    _, _, section = DOCUMENT.partition("### Agents of the environment `command`")
    bold = re.findall(r"\*\*(.+?)\*\*", section.partition("\n## ")[0], re.DOTALL)
    assert any(said in " ".join(passage.split()) for passage in bold), bold
