"""Lists of the admin site over tables that grow for ever: none of their queries reads a whole table.

Invariant: a list says when it has not counted everything. One of more than MAX_LISTED rows says "more than", and its
pages end there.
"""

from functools import cached_property
from typing import Any, cast

from django.contrib import admin
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpRequest

from seamlessflow.control_plane.common.models import Event

MAX_LISTED = 10_000

# A step through the index per kind: there are dozens of kinds among millions of events.
_KINDS = """
    WITH RECURSIVE kinds (kind) AS (
        (SELECT kind FROM common_event ORDER BY kind LIMIT 1)
        UNION ALL
        SELECT (SELECT kind FROM common_event WHERE kind > kinds.kind ORDER BY kind LIMIT 1)
        FROM kinds WHERE kind IS NOT NULL
    )
    SELECT kind FROM kinds WHERE kind IS NOT NULL
"""


class BoundedPaginator(Paginator):  # type: ignore[type-arg]  # takes no parameter at run time
    """Counts rows up to MAX_LISTED only."""

    @cached_property
    def count(self) -> int:
        return min(self._num_found, MAX_LISTED)

    @property
    def has_more(self) -> bool:
        return self._num_found > MAX_LISTED

    @cached_property
    def _num_found(self) -> int:
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by()[: MAX_LISTED + 1].count()


class KindFilter(admin.SimpleListFilter):
    """Shows the events of one kind."""

    title = parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        with connection.cursor() as cursor:
            cursor.execute(_KINDS)
            return [(kind, kind) for (kind,) in cursor.fetchall()]

    def queryset(self, request: HttpRequest, events: QuerySet[Event]) -> QuerySet[Event]:
        return events if self.value() is None else events.filter(kind=self.value())
