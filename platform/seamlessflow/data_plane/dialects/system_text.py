"""Takes per-turn markers out of system prompts, because a line that changes with every request makes every turn fork.

The rule: a line that has the form of an HTTP header `x-…`, with `billing` or `cache` in its name, is for a provider's
accounts and not for the model. An example is `x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

SYSTEM_ROLES = ("system", "developer")
_MARKER = re.compile(
    r"^[ \t]*(x-[a-z0-9-]*(?:billing|cache)[a-z0-9-]*):[^\n]*(?:\n|\Z)", re.IGNORECASE | re.MULTILINE
)


def markers_removed(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text without marker lines, and the names of the markers, each once."""
    names = tuple(dict.fromkeys(name.lower() for name in _MARKER.findall(text)))
    return (_MARKER.sub("", text) if names else text), names


def marker_flags(names: Sequence[str]) -> dict[str, Any]:
    """Return the flags that are recorded with a turn of whose request markers were removed."""
    return {"markers_removed": list(names)} if names else {}


def messages_without_markers(
    messages: Sequence[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], tuple[str, ...]]:
    """Return chat messages without the marker lines of their system and developer messages, and the markers' names.

    A message or part that has only markers is left out, so a conversation may become empty. Texts of other roles are
    never touched.
    """
    shown: list[Mapping[str, Any]] = []
    names: list[str] = []
    for message in messages:
        found: tuple[str, ...] = ()
        if message.get("role") in SYSTEM_ROLES:
            content, found = _content_without(message.get("content"))
            names += found
        if not found:
            shown.append(message)
        elif content:
            shown.append({**message, "content": content})
    return shown, tuple(dict.fromkeys(names))


def _content_without(content: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a content field (a string or text parts) without marker lines, and the markers' names."""
    if isinstance(content, str):
        return markers_removed(content)
    if not isinstance(content, list):
        return content, ()
    pairs = [(part, *markers_removed(_text(part))) for part in content]
    kept = [{**part, "text": text} if found else part for part, text, found in pairs if text or not found]
    return kept, tuple(name for _, _, found in pairs for name in found)


def _text(part: Any) -> str:
    """Return the text of a part; "" if it has none, which the dialect refuses later."""
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""
