"""The one word for how a machine is."""

import pytest

from seamlessflow.core.types.machine_health import machine_health

FACTS = ("is_seen", "is_up", "is_draining", "is_cordoned", "is_quarantined")


@pytest.mark.parametrize(
    "facts, word",
    [
        ("", "not seen"),
        ("is_seen is_quarantined", "down"),
        ("is_seen is_up is_cordoned is_draining is_quarantined", "draining"),
        ("is_seen is_up is_cordoned is_quarantined", "cordoned"),
        ("is_seen is_up is_quarantined", "quarantined"),
        ("is_seen is_up", "healthy"),
    ],
)
def test_the_first_word_that_applies_counts(facts: str, word: str) -> None:
    assert machine_health(**{fact: fact in facts.split() for fact in FACTS}) == word
