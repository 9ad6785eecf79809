"""Measures how long the steps of a coroutine keep the event loop: from when it goes on until it waits again.

`timed` runs a coroutine and reports the duration of each step. `timed_too` runs another one, for a task of its own, and
reports to whatever times the coroutine that made the task. Invariant: results, exceptions and cancellations pass
unchanged.
"""

import time
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

Result = TypeVar("Result")
Report = Callable[[float], None]
_report: ContextVar[Report | None] = ContextVar("timed_steps", default=None)


class _Steps(Generator[Any, Any, Result]):
    __slots__ = ("_add", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, Result], add: Report) -> None:
        self._coroutine, self._add = coroutine, add

    def __await__(self) -> "_Steps[Result]":
        return self

    def send(self, value: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return self._coroutine.send(value)
        finally:
            self._add(time.perf_counter() - began_s)

    def throw(
        self, kind: Any, error: BaseException | object = None, trace: TracebackType | None = None
    ) -> Any:
        began_s = time.perf_counter()
        try:
            return self._coroutine.throw(kind if error is None else error)  # type: ignore[arg-type]
        finally:
            self._add(time.perf_counter() - began_s)

    def close(self) -> None:
        self._coroutine.close()


async def timed(coroutine: Coroutine[Any, Any, Result], add: Report) -> Result:
    _report.set(add)
    result: Result = await _Steps(coroutine, add)
    return result


async def timed_too(coroutine: Coroutine[Any, Any, Result]) -> Result:
    add = _report.get()
    result: Result = await (coroutine if add is None else _Steps(coroutine, add))
    return result
