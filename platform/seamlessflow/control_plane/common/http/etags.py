"""Generations as ETags: an edit names the one that it is based on in `If-Match`.

Takes a request. Returns the generation, or refuses the request: 428 without the header, 400 for anything else than a
generation. Whether it is stale (412) is decided by the service, under its lock.
"""

from http import HTTPStatus

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from seamlessflow.control_plane.common.errors import ApplicationError, field_error

MAX_DIGITS = 18  # what fits the generation's column


def if_match_parameter(what: str) -> OpenApiParameter:
    """Return the header as OpenAPI describes it. `what`: the thing that is edited, such as "machine"."""
    return OpenApiParameter(
        "If-Match",
        location=OpenApiParameter.HEADER,
        required=True,
        description=f"The {what}'s generation that the edit is based on, in quotes, as in its `ETag`.",
    )


def if_match(request: Request, what: str) -> int:
    value = request.headers.get("If-Match")
    if value is None:
        raise ApplicationError(
            f'the header `If-Match` is missing; send the {what}\'s generation, as in "3"',
            status=HTTPStatus.PRECONDITION_REQUIRED,
        )
    digits = value.strip().strip('"')
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= MAX_DIGITS):
        raise field_error("If-Match", f'{value!r} is not accepted; accepted: the generation, as in "3"')
    return int(digits)


def etag(generation: int) -> dict[str, str]:
    """Return the header of an answer that shows the generation."""
    return {"ETag": f'"{generation}"'}
