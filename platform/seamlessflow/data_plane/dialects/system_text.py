"""Takes per-turn markers out of system prompts, because a line that changes with every request makes every turn fork.

The rule: a line that has the form of an HTTP header `x-…`, with `billing` or `cache` in its name, is for a provider's
accounts and not for the model. An example is `x-anthropic-billing-header: cc_version=2.1; cch=0a1b2;`.
"""

import re

_MARKER = re.compile(
    r"^[ \t]*(x-[a-z0-9-]*(?:billing|cache)[a-z0-9-]*):[^\n]*(?:\n|\Z)", re.IGNORECASE | re.MULTILINE
)


def markers_removed(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text without marker lines, and the names of the markers, each once."""
    names = tuple(dict.fromkeys(name.lower() for name in _MARKER.findall(text)))
    return (_MARKER.sub("", text) if names else text), names
