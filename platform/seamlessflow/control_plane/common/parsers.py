"""Bodies as plain values: JSON, and safe YAML; small, without aliases, nested as deep as the parser goes."""

from collections.abc import Mapping
from typing import IO, Any

import yaml
from rest_framework import parsers
from rest_framework.exceptions import ParseError

MAX_BYTES = 1024 * 1024
_TOO_DEEP = "the body is nested too deeply"


class JsonParser(parsers.JSONParser):
    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError(_TOO_DEEP) from error


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
            return _load(text)
        except RecursionError as error:
            raise ParseError(_TOO_DEEP) from error
        except (yaml.YAMLError, ValueError) as error:  # ValueError: of dates and numbers that are none
            raise ParseError(f"the body is not YAML: {' '.join(str(error).split())}") from error


def _load(text: bytes) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Without aliases: a few lines of them expand to more than any memory holds."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it untyped
            raise yaml.composer.ComposerError(None, None, "aliases are not accepted", event.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node
