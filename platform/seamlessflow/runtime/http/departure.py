"""Calls an application at once when the client of a request has left, without a task that waits for it.

The server's protocol puts a `Departure` into the scope of each request. Invariant: each waiting call is made once, at
once if the client has left already.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

_NAME = "seamlessflow.departure"


class Departure:
    """Connected → left. One per connection."""

    def __init__(self) -> None:
        self._has_left = False
        self._waiting: list[Callable[[], None]] = []

    def happened(self) -> None:
        """Make the waiting calls."""
        self._has_left = True
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    @contextlib.contextmanager
    def awaited(self, call: Callable[[], None]) -> Iterator[None]:
        """Call `call` if the client leaves during the block of this context."""
        if self._has_left:
            call()
        else:
            self._waiting.append(call)
        try:
            yield
        finally:
            if call in self._waiting:
                self._waiting.remove(call)


def departure_add(scope: MutableMapping[str, Any], departure: Departure) -> None:
    scope["extensions"] = {_NAME: departure}


def departure_of(scope: Mapping[str, Any]) -> Departure:
    """Return the departure of a request's client. Raises KeyError under a server of another protocol."""
    departure: Departure = scope["extensions"][_NAME]
    return departure
