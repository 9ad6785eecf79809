"""Events and artifacts in the admin site, and the bases of its pages.

Invariant: nothing that the audit trail refers to can be deleted here. Deleting a project, machine or person would also
delete jobs, phases and events, so one click would destroy the record of a month.
"""

import functools
import operator
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.db import models
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from seamlessflow.control_plane.common.admin.lists import MAX_LISTED, BoundedPaginator, KindFilter
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.models import Event
from seamlessflow.core.types.ids import IdKind, parse_id
from seamlessflow.core.types.limits import Reason, limits_of

# Names of authors have no index.
AUTHORS_SEARCHED = 100_000
# A list of applications beside the page would take a quarter of its width.
admin.site.enable_nav_sidebar = False
admin.site.site_header = admin.site.site_title = "SeamlessFlow"
admin.site.index_title = "Administration"


class RecordedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # takes no parameter at run time
    """Rows that the services write, with their events. What a service refuses is undone and shown."""

    def changeform_view(self, request: HttpRequest, *args: Any, **options: Any) -> HttpResponse:
        try:
            return super().changeform_view(request, *args, **options)
        except ApplicationError as error:
            self.message_user(request, error.detail, level="error")
            return HttpResponseRedirect(request.get_full_path())


class KeptAdmin(RecordedAdmin):
    """Rows that cannot be deleted. A search takes identifiers as people see them, `job_01h…`.

    Such rows become many. So a list counts no further than its pages go, and a search for an identifier uses the
    indexes of the columns of identifiers.
    """

    empty_value_display = "–"
    paginator = BoundedPaginator
    show_full_result_count = False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        identifier = _identifier(search_term.strip())
        names = [name[1:] for name in self.get_search_fields(request) if name.startswith("=")]
        if identifier is None or not names:
            return super().get_search_results(request, queryset, search_term)
        return self.with_identifier(queryset, identifier, names), False

    def with_identifier(self, rows: QuerySet[Any], identifier: UUID, names: Sequence[str]) -> QuerySet[Any]:
        """Return the rows that have the identifier in one of the columns."""
        return rows.filter(functools.reduce(operator.or_, (Q(**{name: identifier}) for name in names)))


class ReadOnlyAdmin(KeptAdmin):
    """Rows that only services create and change; actions may call services."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


class ReasonActionForm(ActionForm):
    """Asks for a reason with each action."""

    reason = forms.CharField(required=False, max_length=limits_of(Reason).max_length, label="Reason")


def author_of(request: HttpRequest) -> str:
    """Return the author's name for events."""
    return f"user:{request.user.get_username()}"


def _identifier(term: str) -> UUID | None:
    """Return the identifier in a search term, as it is shown or as it is stored; None without one."""
    prefix = term.partition("_")[0]
    with suppress(ValueError):  # a name may begin like an identifier
        return parse_id(IdKind(prefix), term) if prefix in set(IdKind) else UUID(term)
    return None


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ["at", "kind", "from_state", "to_state", "reason", "author"]
    list_filter = [KindFilter, "at"]
    ordering = ["-id"]
    search_fields = ["=subject_id", "=job_id", "author"]
    search_help_text = (
        "The ID of a job, machine, phase or version (job_01h…), or the author's name, or letters of it (newest "
        f"{AUTHORS_SEARCHED:,} events only)."
    )

    def with_identifier(
        self, rows: QuerySet[Event], identifier: UUID, names: Sequence[str]
    ) -> QuerySet[Event]:
        """Read the newest of each column by its own index: the database would sort all rows of an OR of two."""
        first, *others = (
            Event.objects.filter(**{name: identifier}).order_by("-id").values("id")[: MAX_LISTED + 1]
            for name in names
        )
        return rows.filter(id__in=first.union(*others))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Event], search_term: str
    ) -> tuple[QuerySet[Event], bool]:
        found, may_repeat = super().get_search_results(request, queryset, search_term)
        if not search_term.strip() or _identifier(search_term.strip()) is not None:
            return found, may_repeat
        newest = Event.objects.order_by("-id").values_list("id", flat=True).first() or 0
        return found.filter(id__gt=newest - AUTHORS_SEARCHED), may_repeat
