"""Events and artifacts in the admin site, and the base of pages that show without editing."""

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.db import models
from django.http import HttpRequest

from seamlessflow.control_plane.common.models import Artifact, Event


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # takes no parameter at run time
    """Rows are made and changed by services only; actions may call those."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


class ReasonActionForm(ActionForm):
    """Asks with each action why it is done."""

    reason = forms.CharField(required=False, max_length=1000, label="Reason")


def author_of(request: HttpRequest) -> str:
    """The name in events."""
    return f"user:{request.user.get_username()}"


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ["id", "at", "kind", "from_state", "to_state", "reason", "author"]
    list_filter = ["kind"]
    search_fields = ["=subject_id", "=job_id"]
    show_full_result_count = False


@admin.register(Artifact)
class ArtifactAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "num_bytes", "is_archive", "created_by", "created_at"]
    list_select_related = ["project", "created_by"]
