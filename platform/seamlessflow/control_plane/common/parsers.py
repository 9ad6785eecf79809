"""`application/yaml` bodies: safe YAML, small, one mapping."""

from collections.abc import Mapping
from typing import IO, Any

import yaml
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

MAX_BYTES = 1024 * 1024


class YamlParser(BaseParser):
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
            return yaml.safe_load(text)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ParseError(f"the body is not YAML: {' '.join(str(error).split())}") from error
