"""Writes OpenAPI documents from the types that routes decode and encode.

Takes operations, each with the types of its body and its answers; returns an OpenAPI 3.1 document, or its text as it is
committed in `api_schema/`. Invariant: schemas come only from the types, so a document always agrees with messages that
the code parses.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

JSON = "application/json"
PROBLEM = "application/problem+json"
BYTES = "application/octet-stream"
_REF = "#/components/schemas/{name}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation: a string, unless `kind` says otherwise."""

    name: str
    location: str  # path, query or header
    description: str
    kind: str = "string"


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """An answer of an operation. `body` is None if there is no body, or if it is bytes of `content_type`."""

    description: str
    body: Any = None
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class ApiOperation:
    method: str
    path: str
    name: str
    summary: str
    description: str
    answers: Mapping[int, ApiAnswer]
    security: str | None  # the name of a scheme of the document
    body: Any = None
    body_type: str = JSON
    parameters: Sequence[Parameter] = ()


@dataclass(frozen=True, slots=True)
class Contract:
    """The contents of one document. `types`: types to publish besides those of the operations; `schemes`: credentials
    by name.
    """

    title: str
    version: str
    description: str
    operations: Sequence[ApiOperation]
    schemes: Mapping[str, str]
    types: Sequence[Any] = ()

    def text(self) -> str:
        return json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n"

    def document(self) -> dict[str, Any]:
        types = list(dict.fromkeys(self._types()))
        schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
        by_type = dict(zip(types, schemas, strict=True))
        paths: dict[str, dict[str, Any]] = {}
        for operation in self.operations:
            paths.setdefault(operation.path, {})[operation.method] = _operation(operation, by_type)
        schemes = {
            name: {"type": "http", "scheme": "bearer", "description": description}
            for name, description in self.schemes.items()
        }
        return {
            "openapi": "3.1.0",
            "info": {"title": self.title, "version": self.version, "description": self.description},
            "paths": paths,
            "components": {"securitySchemes": schemes, "schemas": dict(sorted(components.items()))},
        }

    def _types(self) -> Iterator[Any]:
        for operation in self.operations:
            bodies = (operation.body, *(answer.body for answer in operation.answers.values()))
            yield from (body for body in bodies if body is not None)
        yield from self.types


def _operation(operation: ApiOperation, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": operation.description,
        "security": [{operation.security: []}] if operation.security else [],
    }
    if operation.parameters:
        described["parameters"] = [_parameter(one) for one in operation.parameters]
    if operation.body is not None or operation.body_type != JSON:
        content = _content(operation.body, operation.body_type, schemas)
        described["requestBody"] = {"required": True, "content": content}
    described["responses"] = {
        str(status): _answer(answer, schemas) for status, answer in operation.answers.items()
    }
    return described


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.location,
        "required": parameter.location == "path",
        "description": parameter.description,
        "schema": {"type": parameter.kind},
    }


def _answer(answer: ApiAnswer, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    if answer.body is None and answer.content_type == JSON:
        return {"description": answer.description}
    return {
        "description": answer.description,
        "content": _content(answer.body, answer.content_type, schemas),
    }


def _content(body: Any, content_type: str, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    return {content_type: {} if body is None else {"schema": schemas[body]}}
