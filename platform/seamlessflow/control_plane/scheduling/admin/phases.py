"""Phases and machines in the admin site."""

from django.contrib import admin

from seamlessflow.control_plane.common.admin.pages import ReadOnlyAdmin
from seamlessflow.control_plane.scheduling.admin.machines import MachineAdmin
from seamlessflow.control_plane.scheduling.models import Phase

__all__ = ["MachineAdmin", "PhaseAdmin"]


@admin.register(Phase)
class PhaseAdmin(ReadOnlyAdmin):
    list_display = [
        *("machine", "fence", "job", "role", "state", "reason"),
        *("desired_version", "served_version", "leased_at", "ended_at"),
    ]
    list_filter = ["state", "role", "machine"]
    list_select_related = ["machine", "job"]
    ordering = ["-id"]  # newest first, because identifiers are in order of time
    search_fields = ["=id", "=job__id"]
    search_help_text = "The ID of a phase or of a job (pha_01h…, job_01h…)."
