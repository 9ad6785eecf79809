"""Words that docs/glossary.md retired stay out of identifiers, columns, routes and metrics; prose
may use them. Words that stood for many things stay rare in prose and names alike."""

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from django.apps import apps

from tests.fixtures.repository import ROOT

# Each with the word that took its place. Several words: parts of one name that follow one another.
RETIRED = {
    "beginnings": "starter specs",
    "bell": "doorbell, wake-up",
    "course": "dry run",
    "elder": "preempting",
    "fate": "impact",
    "foresee": "dry run",
    "foreseen": "dry run",
    "foresight": "dry run",
    "give way": "preempted",
    "handed back": "requeued",
    "hold clock": "stall timer",
    "in vain": "discarded",
    "misfits": "ineligible",
    "nursery": "fork server",
    "outlook": "impact",
    "resident": "warm process",
    "residents": "warm processes",
    "rhythm": "arrival estimator",
    "ring": "wake-up",
    "rings": "wake-ups",
    "settle": "finalize",
    "settled": "finalized",
    "settling": "finalization",
    "shard images": "sealed shards",
    "shun": "cool down",
    "shunned": "cooling down",
    "surroundings": "dependencies",
    "upkeep": "maintenance",
    "verdict": "drift, outcome",
    "verdicts": "drifts, outcomes",
    "wakes": "notifier",
    "wish": "request",
    "wishes": "requests",
}
PYTHON = ("platform", "workers", "tests", "deploy")
# Words with too many meanings, and how often 1,000 lines of source may have them. Lower a bound whenever the text gets
# plainer; never raise one.
RARE = {
    "told|tells?|said|heard": 0.15,
    "nobody|somebody|whoever|anybody": 0.06,
    "what (is|are|was|it|the)": 0.9,
    "holds?|held|holding": 1.9,
    "rooms?|places?|shares?|parts?|pieces?": 5.6,
}
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Of TypeScript: comments, strings and the text between tags are prose.
TS_PROSE = re.compile(r"//[^\n]*|/\*.*?\*/|\"[^\"\n]*\"|'[^'\n]*'|`[^`]*`|>[^<>{}]+<", re.DOTALL)
TS_NAME = re.compile(r"[A-Za-z_$#][\w$]*")


@functools.cache  # most names occur many times
def retired_in(name: str) -> list[str]:
    words = f" {' '.join(PART.findall(name)).lower()} "
    return [old for old in RETIRED if f" {old} " in words]


def python_names(path: Path) -> Iterator[str]:
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.alias(asname=str(name)):
                yield name


def identifiers() -> Iterator[tuple[str, str]]:
    """Yield (file, name) of the product and its tests."""
    for folder in PYTHON:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "node_modules" not in path.parts:
                yield from ((str(path.relative_to(ROOT)), name) for name in python_names(path))
    for path in sorted((ROOT / "frontend" / "src").rglob("*.ts*")):
        if not path.name.endswith(".gen.d.ts"):
            names = (path.stem, *TS_NAME.findall(TS_PROSE.sub(" ", path.read_text())))
            yield from ((str(path.relative_to(ROOT)), name) for name in names)


def found(named: Iterable[tuple[str, str]]) -> set[str]:
    return {f"{where}: {name} ({old} -> {RETIRED[old]})" for where, name in named for old in retired_in(name)}


def test_no_identifier_uses_a_retired_word() -> None:
    assert not found(identifiers())


def test_no_column_uses_a_retired_word() -> None:
    columns = [
        (model._meta.db_table, str(field.column))
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.local_fields
    ]
    node_table = (
        ROOT / "platform/seamlessflow/control_plane/trajectories/migrations/node_table.sql"
    ).read_text()
    columns += [("trajectory_node", name) for name in re.findall(r"^    (\w+) ", node_table, re.MULTILINE)]

    assert len(columns) > 200
    assert not found(columns)


def test_no_route_and_no_published_field_uses_a_retired_word() -> None:
    openapi = (ROOT / "api_schema" / "openapi.yaml").read_text()
    keys = re.findall(r"^\s*([\w/{}<>-]+):", openapi, re.MULTILINE)
    gateway = re.findall(
        r'Route\("([^"]+)"', (ROOT / "platform/seamlessflow/data_plane/routes/json_routes.py").read_text()
    )

    assert len(gateway) > 5
    assert not found([("openapi.yaml", key) for key in keys] + [("gateway", route) for route in gateway])


def test_no_metric_uses_a_retired_word() -> None:
    explained = (ROOT / "docs" / "metrics.md").read_text()
    named = [
        ("docs/metrics.md", name)
        for name in re.findall(r"`((?:reward|rollout|train|perf|eval)/[^`]+)`", explained)
    ]
    sources = (ROOT / "platform").rglob("*.py")
    named += [
        (str(path.relative_to(ROOT)), name)
        for path in sources
        for name in re.findall(
            r"(?:_counter|Counter|Gauge|Histogram|_gauge|_histogram)\(\s*\"(\w+)\"", path.read_text()
        )
    ]

    assert len(named) > 60
    assert not found(named)


@functools.cache
def source_lines() -> list[str]:
    paths = (
        path
        for folder in ("platform", "workers")
        for kind in ("*.py", "*.sql")
        for path in (ROOT / folder).rglob(kind)
    )
    return [
        line for path in paths if "migrations" not in path.parts for line in path.read_text().splitlines()
    ]


@pytest.mark.parametrize("words", RARE)
def test_words_with_many_meanings_are_rare(words: str) -> None:
    lines, pattern = source_lines(), re.compile(rf"\b({words})\b", re.IGNORECASE)
    found = [line.strip() for line in lines for _ in pattern.finditer(line)]

    assert len(found) / len(lines) * 1000 <= RARE[words], found


@pytest.mark.parametrize(
    "name, old",
    [
        ("num_verdicts", "verdicts"),
        ("HoldClock", "hold clock"),
        ("is_in_vain", "in vain"),
        ("/v1/wish-list", "wish"),
        ("hasRhythm", "rhythm"),
    ],
)
def test_a_retired_word_is_found_in_any_spelling(name: str, old: str) -> None:
    assert retired_in(name) == [old]


def test_the_glossary_names_every_retired_word() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text().lower()

    assert not [old for old in RETIRED if old not in glossary]
