"""Digests the parts of a tokenizer.json that turn ids into text. Equal digests mean equal ids.

Recorded tokens are trained as they are, so the model must read them in the same way. Chat templates and the rules that
cut text into tokens may differ, because nothing is tokenised again.
"""

import hashlib
from pathlib import Path

import orjson

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.runtime.json_files import (
    TOKENIZER_BOUNDS,
    InvalidJsonFile,
    json_file_read,
)


def tokenizer_digest(folder: Path) -> str:
    """Return the digest of vocabulary, added tokens and decoder. Raises ApplicationError naming `model.source`."""
    try:
        content = json_file_read(folder / "tokenizer.json", TOKENIZER_BOUNDS)
    except (OSError, InvalidJsonFile) as error:
        raise field_error("model.source", f"{folder.name}/tokenizer.json cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise field_error("model.source", f"{folder.name}/tokenizer.json is not a JSON object")
    model = content.get("model")
    meaning = {
        "vocabulary": model.get("vocab") if isinstance(model, dict) else None,
        "decoder": content.get("decoder"),
        "added": [
            (token.get("id"), token.get("content"))
            for token in content.get("added_tokens") or []
            if isinstance(token, dict)
        ],
    }
    return hashlib.sha256(orjson.dumps(meaning, option=orjson.OPT_SORT_KEYS)).hexdigest()
