"""The gateway needs no right that its role lacks: when a statement uses a new table, the table must
be granted as well."""

import re
from collections.abc import Iterator
from pathlib import Path

from seamlessflow.core.access.gateway_grants import GRANTS

SOURCES = Path(__file__).parents[2] / "platform" / "seamlessflow" / "data_plane"
APPS = "accounts|cluster|common|jobs|policies|scheduling|telemetry|trajectory"
TABLE = rf"((?:{APPS})_[a-z_]+)"
STATEMENTS = {
    "select": (rf"\b(?:FROM|JOIN)\s+{TABLE}",),
    "insert": (rf"\bINSERT INTO\s+{TABLE}", rf"\bCOPY\s+{TABLE}"),
    "update": (rf"\bUPDATE\s+{TABLE}", rf'\bINSERT INTO\s+{TABLE}[^"]*?\bDO UPDATE'),
    "is_delete": (rf"\bDELETE FROM\s+{TABLE}",),
}


def needed() -> Iterator[tuple[str, str, str]]:
    """Yield (table, verb, file) for every statement."""
    for path in sorted((*SOURCES.rglob("*.py"), *SOURCES.rglob("*.sql"))):
        # As in a string of Python, a statement ends before the next.
        text = path.read_text().replace("-- name", '"')
        for verb, patterns in STATEMENTS.items():
            for pattern in patterns:
                for found in re.finditer(pattern, text):
                    yield found[1], verb, str(path.relative_to(SOURCES))


def test_every_statement_of_the_gateway_is_granted() -> None:
    statements = set(needed())
    missing = {one for one in statements if one[0] not in GRANTS or not getattr(GRANTS[one[0]], one[1])}

    assert len({table for table, _, _ in statements}) > 10
    assert not missing, (
        f"not granted: {sorted(missing)}; add them to platform/seamlessflow/core/access/gateway_grants.py"
    )


def test_nothing_is_granted_that_no_statement_needs() -> None:
    used = {(table, verb) for table, verb, _ in needed()}
    granted = {
        (table, verb)
        for table, grant in GRANTS.items()
        for verb in ("insert", "update", "is_delete")
        if getattr(grant, verb)
    }

    assert granted <= used, f"no statement needs {sorted(granted - used)}"
