"""Gathers the faults of a submitted spec, so that its author learns all of it at once.

Each check raises an ApplicationError with the fields that it is about. `SpecFaults.check` runs one and keeps its
faults; `error` is the one problem that names them all. To add a check at submission, write a function that raises
`field_error` and pass it to `check` in `submit._model_check` (what needs the model's folder) or `submit._submit` (all
else).

Invariant: an error that names no field (a conflict, a full queue) is no fault of the spec and is raised at once.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from seamlessflow.control_plane.common.errors import ApplicationError, FieldFault

P = ParamSpec("P")
T = TypeVar("T")


class SpecFaults:
    """The faults of one spec, in the order in which the checks found them."""

    def __init__(self) -> None:
        self._faults: list[FieldFault] = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    def check(self, check: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return what `check` returns; keep its faults and return None if it raises some."""
        try:
            return check(*args, **kwargs)
        except ApplicationError as error:
            if not error.faults:
                raise
            self._faults += [fault for fault in error.faults if fault not in self._faults]
            return None

    def error(self) -> ApplicationError:
        """Return one problem with all faults."""
        text = "; ".join(f"{fault.field}: {fault.detail}" for fault in self._faults)
        return ApplicationError(text, faults=tuple(self._faults))
