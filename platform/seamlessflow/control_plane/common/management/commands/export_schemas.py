"""Write every published contract to `api_schema/`, and the tables of docs/algorithms.md; `--check` only compares.

The contracts: the REST API, the job spec, limits of what people write, the gateway's API, the worker protocol, live
frames.
"""

import json
from pathlib import Path
from typing import Annotated, Any, get_origin

from django.core.management.base import BaseCommand, CommandError, CommandParser
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer
from drf_spectacular.validation import validate_schema
from pydantic import TypeAdapter

from seamlessflow.core.algorithms.reference_tables import filled
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.protocol.gateway_api import GATEWAY
from seamlessflow.core.protocol.live_api import LIVE
from seamlessflow.core.protocol.worker_api import WORKER
from seamlessflow.core.types import limits
from seamlessflow.core.types.desired_state import DesiredState

CONTRACTS = {
    "gateway.openapi.json": GATEWAY,
    "live.openapi.json": LIVE,
    "worker.openapi.json": WORKER,
}


class Command(BaseCommand):
    help = __doc__
    # The schemas do not depend on a database: no checks that would want one.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--check", action="store_true", help="Only compare, and fail if a file is out of date."
        )
        parser.add_argument("--folder", type=Path, default=Path("api_schema"))
        parser.add_argument("--algorithms", type=Path, default=Path("docs/algorithms.md"))

    def handle(self, *args: Any, **options: Any) -> None:
        drifted = []
        wanted = {
            options["folder"] / "openapi.yaml": openapi_text(),
            options["folder"] / "job_spec.schema.json": _json_text(JobSpec.model_json_schema()),
            options["folder"] / "limits.schema.json": _json_text(limits_schema()),
            **{options["folder"] / name: contract.text() for name, contract in CONTRACTS.items()},
            options["algorithms"]: filled(options["algorithms"].read_text()),
        }
        for path, text in wanted.items():
            if path.exists() and path.read_text() == text:
                continue
            drifted.append(path.name)
            if not options["check"]:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        if drifted and options["check"]:
            raise CommandError(f"{', '.join(drifted)} is out of date: run `python -m django export_schemas`")


def openapi_text() -> str:
    """Return the validated OpenAPI document. Raises CommandError for any warning of its generator."""
    GENERATOR_STATS.reset()
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    if GENERATOR_STATS:
        GENERATOR_STATS.emit_summary()
        raise CommandError("the OpenAPI document has warnings; they are listed above")
    validate_schema(schema)  # type: ignore[no-untyped-call]
    return str(OpenApiYamlRenderer().render(schema).decode())  # type: ignore[no-untyped-call]


def limits_schema() -> dict[str, Any]:
    """Return the JSON Schema of each type of `core.types.limits`, and of a machine's desired state, by its name."""
    kinds = {name: kind for name, kind in vars(limits).items() if get_origin(kind) is Annotated}
    kinds["DesiredState"] = DesiredState
    return {name: TypeAdapter(kind).json_schema() for name, kind in kinds.items()}


def _json_text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
