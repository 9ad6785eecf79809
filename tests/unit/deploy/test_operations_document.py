"""docs/operations.md: who runs agents of others reads in bold what keeps them apart from nothing."""

import re

import pytest

from tests.fixtures.repository import ROOT

DOCUMENT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "said", ["Not isolated", "The network", "memory, disk", "The kernel", "reward", "agents share its user"]
)
def test_what_is_not_isolated_of_agents_is_said_in_bold(said: str) -> None:
    _, _, section = DOCUMENT.partition("### Agents of the environment `command`")
    bold = re.findall(r"\*\*(.+?)\*\*", section.partition("\n## ")[0], re.DOTALL)
    assert any(said in " ".join(passage.split()) for passage in bold), bold
