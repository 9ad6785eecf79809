"""Events and artifacts in the admin site, and the bases of its pages.

Invariant: nothing that the audit trail refers to can be deleted here. Rows of projects, machines and people carry those
of jobs, phases and events with them, so one click would take the record of a month.
"""

from contextlib import suppress
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest

from seamlessflow.control_plane.common.models import Artifact, Event
from seamlessflow.core.types.ids import IdKind, parse_id

# What is to be read belongs on the page; a list of applications beside it takes a quarter of its width.
admin.site.enable_nav_sidebar = False
admin.site.site_header = admin.site.site_title = "SeamlessFlow"
admin.site.index_title = "Administration"


class KeptAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # takes no parameter at run time
    """Rows that stay: no deletion. A search takes identifiers as people see them, `job_01h…`."""

    empty_value_display = "–"

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return super().get_search_results(request, queryset, _stored_id(search_term.strip()))


class ReadOnlyAdmin(KeptAdmin):
    """Rows are made and changed by services only; actions may call those."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


class ReasonActionForm(ActionForm):
    """Asks with each action why it is done."""

    reason = forms.CharField(required=False, max_length=1000, label="Reason")


def author_of(request: HttpRequest) -> str:
    """The name in events."""
    return f"user:{request.user.get_username()}"


def _stored_id(term: str) -> str:
    """The UUID behind an identifier as it is shown; any other term as it is."""
    prefix = term.partition("_")[0]
    if prefix in set(IdKind):
        with suppress(ValueError):  # a name may begin like an identifier
            return str(parse_id(IdKind(prefix), term))
    return term


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ["at", "kind", "from_state", "to_state", "reason", "author"]
    list_filter = ["kind", "at"]
    ordering = ["-id"]
    search_fields = ["=subject_id", "=job_id", "author"]
    search_help_text = (
        "The id of a job, machine, phase or version (job_01h…), or a part of the author's name."
    )
    show_full_result_count = False


@admin.register(Artifact)
class ArtifactAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "num_bytes", "is_archive", "created_by", "created_at"]
    list_select_related = ["project", "created_by"]
