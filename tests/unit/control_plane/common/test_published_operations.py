"""Every operation of the REST API says what it does, in words that its caller knows."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.fixtures.repository import ROOT

# Words of the code and of its module docstrings: a caller of the API does not know them.
INTERNAL = re.compile(
    r"\b(selectors?|services?|serializers?|querysets?|views?|handlers?|msgspec|pydantic|django|Enters|Leaves|"
    r"Invariant|core\.\w+|control_plane|data_plane)\b",
)
METHODS = {"get", "post", "put", "patch", "delete"}


def operations() -> Iterator[dict[str, Any]]:
    document = yaml.safe_load((ROOT / "api_schema" / "openapi.yaml").read_text())
    for methods in document["paths"].values():
        yield from (operation for method, operation in methods.items() if method in METHODS)


OPERATIONS = {operation["operationId"]: operation for operation in operations()}


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_says_what_it_does_for_its_caller(name: str) -> None:
    operation = OPERATIONS[name]
    summary, description = operation.get("summary", ""), operation.get("description", "")

    assert len(summary.split()) >= 3, "the docstring of the handler begins with one line for the caller"
    assert not summary.endswith("."), "the summary is a title"
    assert description.endswith(".")
    assert not INTERNAL.findall(summary + " " + description)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_describes_its_parameters_and_its_refusals(name: str) -> None:
    operation = OPERATIONS[name]

    nameless = [one["name"] for one in operation.get("parameters", []) if not one.get("description")]
    assert not nameless
    problem = operation["responses"]["default"]["content"]["application/problem+json"]["schema"]
    assert problem["$ref"].endswith("/ProblemOutput")
