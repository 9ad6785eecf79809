"""Tells an application at once that the client of a request has left, without a task that waits for it.

The server's protocol puts a `Departure` into the scope of each request. Invariant: whoever waits for it is called
once, at once if the client has left already.
"""

from collections.abc import Callable, Mapping, MutableMapping
from types import TracebackType
from typing import Any

_NAME = "seamlessflow.departure"


class Departure:
    """Connected → left. One per connection."""

    def __init__(self) -> None:
        self._has_left = False
        self._waiting: list[Callable[[], None]] = []

    def happened(self) -> None:
        """Tell everybody who waits."""
        self._has_left = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def awaited(self, call: Callable[[], None]) -> "_Awaited":
        """Call `call` if the client leaves during the block of this context."""
        return _Awaited(self, call)


class _Awaited:
    __slots__ = ("_call", "_departure")

    def __init__(self, departure: Departure, call: Callable[[], None]) -> None:
        self._departure, self._call = departure, call

    def __enter__(self) -> None:
        if self._departure._has_left:
            self._call()
        else:
            self._departure._waiting.append(self._call)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._call in self._departure._waiting:
            self._departure._waiting.remove(self._call)


def departure_add(scope: MutableMapping[str, Any], departure: Departure) -> None:
    scope["extensions"] = {_NAME: departure}


def departure_of(scope: Mapping[str, Any]) -> Departure:
    """Return the departure of a request's client. Raises KeyError under a server whose protocol tells none."""
    departure: Departure = scope["extensions"][_NAME]
    return departure
