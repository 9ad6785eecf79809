"""Parses bodies into plain values: JSON, and safe YAML that is small and has no aliases."""

import json
from collections.abc import Mapping
from typing import IO, Any

import yaml
from rest_framework import parsers
from rest_framework.exceptions import ParseError

from seamlessflow.runtime.yaml_documents import UniqueKeyLoader, yaml_document

MAX_BYTES = 256 * 1024
MAX_NODES = 20_000  # each takes a kilobyte while it is read
MAX_VALUES = 200_000
_TOO_DEEP = "the body is nested too deeply"


class JsonParser(parsers.JSONParser):
    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        text = stream.read()
        if sum(map(text.count, (b",", b"[", b"{"))) > MAX_VALUES:
            raise ParseError(f"the body has more than the {MAX_VALUES} values accepted")
        try:
            return json.loads(text, object_pairs_hook=_mapping, parse_constant=_refuse_constant)
        except RecursionError as error:
            raise ParseError(_TOO_DEEP) from error
        except ValueError as error:
            raise ParseError(f"JSON parse error - {error}") from error


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a mapping. A repeated key is refused, because one of its values would be lost."""
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ParseError(f"the key {key!r} is given more than once in one mapping")
        mapping[key] = value
    return mapping


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


class YamlParser(parsers.BaseParser):
    media_type = "application/yaml"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        text = stream.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ParseError(f"the YAML body is longer than {MAX_BYTES} bytes")
        try:
            return yaml_document(text, _Loader)
        except RecursionError as error:
            raise ParseError(_TOO_DEEP) from error
        except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date or number
            raise ParseError(f"the body is not valid YAML: {' '.join(str(error).split())}") from error


class _Loader(UniqueKeyLoader):
    """Bounds the number of values and refuses aliases, a few lines of which can expand beyond any memory."""

    _num_nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            raise yaml.composer.ComposerError(
                None,
                None,
                f"more than the {MAX_NODES} values accepted",
                self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it untyped
            raise yaml.composer.ComposerError(None, None, "aliases are not accepted", event.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node
