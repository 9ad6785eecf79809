"""Capability tags of a machine: its permitted uses.

`rollout`, `train` and `agent` act; any other tag only matches a job's placement.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

from seamlessflow.core.types.labels import refused_labels
from seamlessflow.core.types.limits import Tag, limits_of

_TAG = re.compile(limits_of(Tag).pattern or "")


class Role(StrEnum):
    """What a phase does on a machine, named like the tag that allows it."""

    ROLLOUT = "rollout"
    TRAIN = "train"
    AGENT = "agent"


ROLE_TAGS = frozenset(role.value for role in Role)
# A machine has at most one phase of these roles at a time; agents may run beside it.
EXCLUSIVE_ROLES = frozenset({Role.ROLLOUT, Role.TRAIN})


class InvalidTag(ValueError):
    """A tag that does not match the grammar, or that only a machine itself could report."""


def parse_tags(tags: Iterable[str]) -> frozenset[str]:
    """Check and deduplicate tags. Raises InvalidTag, which names the first bad one."""
    checked = set()
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise InvalidTag(f"tag {tag!r} must match {_TAG.pattern.strip('^$')}")
        checked.add(tag)
    if refused := refused_labels(checked):
        raise InvalidTag(refused)
    return frozenset(checked)
