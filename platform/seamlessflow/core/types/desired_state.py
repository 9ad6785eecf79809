"""The state that people set on a machine: the one declaration of its fields.

REST, dry runs, the command line, the admin site, the scheduler's view of a machine and the dashboard's dialog derive
from it; `core.types.limits` has limits and help. Invariant: an edit sets no value that the limits refuse.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

from seamlessflow.core.types.limits import Cost, Limits, PoolName, Tag, limits_of
from seamlessflow.core.types.pools import OPEN_POOL
from seamlessflow.core.types.tags import InvalidTag, parse_tags

ORDINARY_COST = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    tags: frozenset[Tag]
    is_cordoned: Annotated[bool, Limits(help="The machine gets no new phases.")] = False
    is_draining: Annotated[bool, Limits(help="Its running phases are handed over and ended.")] = False
    pool: PoolName = OPEN_POOL
    cost: Cost = ORDINARY_COST


KINDS: dict[str, Any] = get_type_hints(DesiredState, include_extras=True)
# The fields that are neither tags nor flags.
SETTINGS = [name for name, kind in KINDS.items() if get_args(kind)[0] in (str, int, float)]
_DEFAULTS = {field.name: field.default for field in fields(DesiredState)}


def desired_text(state: DesiredState, *marks: str) -> str:
    """Return the state in words, as far as it differs from the default, with further marks.

    >>> desired_text(DesiredState(tags=frozenset({"train"}), is_draining=True, pool="lab", cost=2.0))
    '{train}, draining in the pool lab of cost 2'
    """
    mark = "draining" if state.is_draining else "cordoned" if state.is_cordoned else ""
    texts = [f"{{{', '.join(sorted(state.tags))}}}", *filter(None, (mark, *marks))]
    changed = {name: getattr(state, name) for name in SETTINGS if getattr(state, name) != _DEFAULTS[name]}
    return ", ".join(texts) + "".join(_setting_text(name, value) for name, value in changed.items())


def _setting_text(name: str, value: Any) -> str:
    return f" in the pool {value}" if name == "pool" else f" of {name.replace('_', ' ')} {format(value, 'g')}"


class InvalidEdit(ValueError):
    """The value of one field is refused; the message names the accepted ones."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


@dataclass(frozen=True, slots=True)
class MachineEdit:
    """An edit of a machine; None leaves a field unchanged."""

    tags: Collection[str] | None = None
    is_cordoned: bool | None = None
    is_draining: bool | None = None
    pool: str | None = None
    cost: float | None = None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "MachineEdit":
        """Return the edit that a form or a REST body asks for."""
        return cls(**{name: body.get(name) for name in KINDS})

    @property
    def cordons(self) -> bool | None:
        """Whether the edit cordons. Draining does, because a machine that is being drained must get no new work."""
        return True if self.is_draining else self.is_cordoned

    def changes(self) -> dict[str, Any]:
        """The fields that the edit sets. Raises InvalidEdit for the first value that is refused."""
        wanted = {name: getattr(self, name) for name in KINDS} | {"is_cordoned": self.cordons}
        return {name: _checked(name, value) for name, value in wanted.items() if value is not None}


def _checked(name: str, value: Any) -> Any:
    if name == "tags":
        try:
            return parse_tags(value)
        except InvalidTag as error:
            raise InvalidEdit(name, str(error)) from error
    if refusal := limits_of(KINDS[name]).refusal(value):
        raise InvalidEdit(name, refusal)
    return value
