"""docs/metrics.md explains every metric that the code publishes, and no others."""

import ast
import re

from tests.fixtures.repository import ROOT

NAME = re.compile(r"(reward|rollout|train|perf|eval)/[a-z0-9_<>/]+")
BLANK = re.compile(r"<[a-z]+>")


def names_in_code() -> set[str]:
    """Return the string literals that are metric names; `<>` stands for what an f-string fills
    in."""
    found = set()
    for root in ("platform", "workers"):
        for path in (ROOT / root).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            inner = {
                id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    text = "".join(str(p.value) if isinstance(p, ast.Constant) else "<>" for p in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                    text = node.value
                else:
                    continue
                if NAME.fullmatch(text):
                    found.add(text)
    return found


def names_in_docs() -> set[str]:
    """Return the names in the first columns of the tables."""
    lines = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines()
    return {
        name
        for line in lines
        if line.startswith("| `")
        for name in re.findall(r"`(.+?)`", line.split("|")[1])
    }


def is_covered(name: str, by: set[str]) -> bool:
    patterns = (re.escape(BLANK.sub("<>", other)).replace("<>", "[a-z0-9_<>]+") for other in by)
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def test_every_published_metric_is_explained() -> None:
    code, docs = names_in_code(), names_in_docs()

    assert len(code) > 50
    assert {name for name in code if not is_covered(name, docs)} == set()


def test_every_explained_metric_is_published() -> None:
    code, docs = names_in_code(), names_in_docs()

    assert {name for name in docs if not is_covered(BLANK.sub("<>", name), code)} == set()
