"""Golden examples of every published contract: read by Python here and by TypeScript in `live/goldenExamples.test.ts`.

A file `api_schema/examples/<contract>/<Type>.<case>.json` holds one value of a type in `<contract>.openapi.json`.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from seamlessflow.core.access.routes import GATEWAY_ROUTES, WEB_CALLERS, WORKER_API
from seamlessflow.core.protocol import live_rows
from seamlessflow.core.protocol.gateway_api import GATEWAY
from seamlessflow.core.protocol.live_api import LIVE
from seamlessflow.core.protocol.openapi import Contract
from seamlessflow.core.protocol.worker_api import WORKER
from tests.fixtures.repository import ROOT

EXAMPLES = ROOT / "api_schema" / "examples"
CONTRACTS = {"gateway": GATEWAY, "live": LIVE, "worker": WORKER}
FILES = sorted(EXAMPLES.glob("*/*.json"))


def types_of(contract: Contract) -> dict[str, Any]:
    """The types that cross the wire whole, by name."""
    bodies = [operation.body for operation in contract.operations]
    bodies += [answer.body for operation in contract.operations for answer in operation.answers.values()]
    return {kind.__name__: kind for kind in (*bodies, *contract.types) if kind not in (None, live_rows.Frame)}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_example_is_what_the_schema_and_the_code_say(path: Path) -> None:
    name, contract = path.name.partition(".")[0], CONTRACTS[path.parent.name]
    example = json.loads(path.read_text())

    document = json.loads((ROOT / "api_schema" / f"{path.parent.name}.openapi.json").read_text())
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    Draft202012Validator(schema).validate(example)
    decoded = msgspec.json.decode(path.read_bytes(), type=types_of(contract)[name])
    encoded = msgspec.to_builtins(decoded)
    told = {key: encoded[key] for key in example}
    assert told == msgspec.to_builtins(example) or json.loads(msgspec.json.encode(told)) == example, (
        "the example has only fields that the type has, as the code writes them"
    )


@pytest.mark.parametrize("name", sorted(CONTRACTS))
def test_every_type_of_a_contract_has_an_example(name: str) -> None:
    shown = {path.name.partition(".")[0] for path in FILES if path.parent.name == name}

    assert shown == set(types_of(CONTRACTS[name]))


def test_every_kind_of_frame_has_an_example() -> None:
    kinds = {json.loads(path.read_text())["kind"] for path in FILES if path.parent.name == "live"}

    assert kinds == set(live_rows.FrameKind)


def test_contracts_have_the_routes_that_are_served() -> None:
    published = {(one.method.upper(), one.path) for one in (*GATEWAY.operations, *WORKER.operations)}
    gateway = {route for route in GATEWAY_ROUTES if route[1] not in ("/healthz", "/metrics")}
    worker = {
        (method, "/" + route.replace("<uuid:phase_id>", "{phase_id}"))
        for method, route in WEB_CALLERS
        if route.startswith(WORKER_API)
    }

    assert published == gateway | worker
