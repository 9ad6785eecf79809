"""Finds the family of a submitted model by its chat template and its tokens, so that the job records it.

The gateway reads the answers of the job's model by this family. A model whose files cannot be read counts as unknown.
"""

from pathlib import Path
from typing import Any

from seamlessflow.control_plane.common.files.json_files import (
    CONFIG_BOUNDS,
    TOKENIZER_BOUNDS,
    InvalidJsonFile,
    JsonBounds,
    json_file_read,
)
from seamlessflow.core.families import ModelFamily, family_find


def model_family(folder: Path, named: ModelFamily) -> ModelFamily:
    """Return the family that the spec names; for `auto`, the family that the model's files show."""
    if named is not ModelFamily.AUTO:
        return named
    return family_find(_template(folder), lambda token: token in _special_tokens(folder))


def _template(folder: Path) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8", errors="replace")
    template = _object(folder / "tokenizer_config.json", CONFIG_BOUNDS).get("chat_template")
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[0].get("template") if named else None
    return template if isinstance(template, str) else ""


def _special_tokens(folder: Path) -> set[str]:
    tokens = _object(folder / "tokenizer.json", TOKENIZER_BOUNDS).get("added_tokens") or []
    return {str(token.get("content")) for token in tokens if isinstance(token, dict)}


def _object(file: Path, bounds: JsonBounds) -> dict[str, Any]:
    try:
        content = json_file_read(file, bounds)
    except (OSError, InvalidJsonFile):
        return {}
    return content if isinstance(content, dict) else {}
