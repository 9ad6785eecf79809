"""Pages of lists: `?limit=&offset=`, answered with the count of all rows."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import inline_serializer
from rest_framework import serializers
from rest_framework.response import Response

from seamlessflow.control_plane.common.http.query import IntegerParameter, Query

DEFAULT_LIMIT = 50
MAX_LIMIT = 500


class PageQuery(Query):
    limit = IntegerParameter(
        f"Maximum number of rows, 1 to {MAX_LIMIT}. Default: {DEFAULT_LIMIT}.",
        least=1,
        most=MAX_LIMIT,
        default=DEFAULT_LIMIT,
    )
    offset = IntegerParameter("Number of rows to skip. Default: 0.", default=0)


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
    query: Mapping[str, Any],
    rows: QuerySet[Any] | Sequence[Any],
    item: type[serializers.Serializer],
    prepare: Callable[[list[Any]], None],
) -> Response:
    """Answer with the page that a PageQuery asks for, after `prepare`."""
    limit, offset = query["limit"], query["offset"]
    page = list(rows[offset : offset + limit])
    prepare(page)
    count = len(rows) if isinstance(rows, Sequence) else rows.count()
    return Response({"count": count, "limit": limit, "offset": offset, "results": item(page, many=True).data})
