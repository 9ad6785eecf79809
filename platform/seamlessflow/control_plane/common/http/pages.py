"""Pages of lists: `?limit=&offset=`, answered with the count of all rows."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.common.errors import field_error

DEFAULT_LIMIT = 50
MAX_LIMIT = 500

PAGE_PARAMETERS = [
    OpenApiParameter(
        "limit",
        OpenApiTypes.INT,
        description=f"Maximum number of rows, 1 to {MAX_LIMIT}. Default: {DEFAULT_LIMIT}.",
    ),
    OpenApiParameter("offset", OpenApiTypes.INT, description="Number of rows to skip. Default: 0."),
]


@cache
def page_serializer(item: type[serializers.Serializer]) -> serializers.Serializer:
    """Return the shape of a page for OpenAPI: one for each kind of item, because its name is one component there."""
    return inline_serializer(
        name=f"{item.__name__.removesuffix('Output')}Page",
        fields={
            "count": serializers.IntegerField(help_text="Number of rows in all pages."),
            "limit": serializers.IntegerField(),
            "offset": serializers.IntegerField(),
            "results": item(many=True),
        },
    )


def page_response(
    request: Request,
    rows: QuerySet[Any] | Sequence[Any],
    item: type[serializers.Serializer],
    prepare: Callable[[list[Any]], None] = lambda page: None,
) -> Response:
    """Answer with a page. `prepare` may add to its rows what one more query reads for all of them, or replace them."""
    limit = query_integer(request, "limit", default=DEFAULT_LIMIT, minimum=1, maximum=MAX_LIMIT)
    offset = query_integer(request, "offset", default=0)
    page = list(rows[offset : offset + limit])
    prepare(page)
    count = len(rows) if isinstance(rows, Sequence) else rows.count()
    return Response({"count": count, "limit": limit, "offset": offset, "results": item(page, many=True).data})


def query_integer(
    request: Request, name: str, *, default: int, minimum: int = 0, maximum: int = 2**62
) -> int:
    """Return a whole number from the query. Raises ApplicationError naming the accepted ones."""
    value = request.query_params.get(name)
    if value is None:
        return default
    try:
        number = int(value)
    except ValueError:
        number = minimum - 1
    if not minimum <= number <= maximum:
        accepted = f"{minimum} to {maximum}" if maximum < 2**62 else f"from {minimum} on"
        raise field_error(name, f"{value!r} is not accepted; accepted: a whole number {accepted}")
    return number
