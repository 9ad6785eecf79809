"""The one exception that services raise for anticipated faults; `common.http.problems` turns it into RFC 9457."""

from dataclasses import dataclass
from http import HTTPStatus


@dataclass(frozen=True, slots=True)
class FieldFault:
    """One thing wrong with one field of the input, in words for its author."""

    field: str
    detail: str


class ApplicationError(Exception):
    """A request that cannot be served, with one clear sentence that says why."""

    def __init__(
        self,
        detail: str,
        *,
        status: HTTPStatus = HTTPStatus.BAD_REQUEST,
        faults: tuple[FieldFault, ...] = (),
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.faults = faults


def field_error(field: str, detail: str, *, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> ApplicationError:
    """Return an error about one field."""
    return ApplicationError(f"{field}: {detail}", status=status, faults=(FieldFault(field, detail),))


def not_found(kind: str, identifier: object) -> ApplicationError:
    """Return the same error whether the object is missing or the caller may not see it."""
    return ApplicationError(f"there is no {kind} {identifier}", status=HTTPStatus.NOT_FOUND)


def stale(kind: str, generation: int, named: int) -> ApplicationError:
    """Return the error of an edit that names a generation which is no longer the newest."""
    return ApplicationError(
        f"the {kind} is at generation {generation}, not {named}; read it again and repeat the edit",
        status=HTTPStatus.PRECONDITION_FAILED,
    )


def conflict(detail: str) -> ApplicationError:
    return ApplicationError(detail, status=HTTPStatus.CONFLICT)
