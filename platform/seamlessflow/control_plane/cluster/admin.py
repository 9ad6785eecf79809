"""Grants of pools in the admin site; machines are edited in `scheduling.machine_admin`, with a dry run."""

from django.contrib import admin

from seamlessflow.control_plane.cluster.models import PoolGrant


@admin.register(PoolGrant)
class PoolGrantAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Grants of pools. They may be deleted, because a grant concerns only the future and no record refers to it."""

    list_display = ["pool", "project"]
    list_filter = ["pool", "project"]
    list_select_related = ["project"]
