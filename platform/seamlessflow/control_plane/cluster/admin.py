"""Grants of pools in the admin site; machines are edited in `scheduling.machine_admin`, with a dry run."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from seamlessflow.control_plane.cluster.models import PoolGrant
from seamlessflow.control_plane.cluster.services.pools import grant_record
from seamlessflow.control_plane.common.admin.pages import author_of


@admin.register(PoolGrant)
class PoolGrantAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Grants of pools. They may be deleted, because a grant concerns only the future and no record refers to it."""

    list_display = ["pool", "project"]
    list_filter = ["pool", "project"]
    list_select_related = ["project"]

    def has_change_permission(self, request: HttpRequest, obj: PoolGrant | None = None) -> bool:
        """A grant is given or revoked; both leave an event, as over REST."""
        return False

    def save_model(self, request: HttpRequest, obj: PoolGrant, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        _record(request, "pool.granted", obj)

    def delete_model(self, request: HttpRequest, obj: PoolGrant) -> None:
        super().delete_model(request, obj)
        _record(request, "pool.revoked", obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[PoolGrant]) -> None:
        grants = list(queryset.select_related("project"))
        super().delete_queryset(request, queryset)
        for grant in grants:
            _record(request, "pool.revoked", grant)


def _record(request: HttpRequest, kind: str, grant: PoolGrant) -> None:
    grant_record(
        kind=kind, pool=grant.pool, project=grant.project, reason="admin site", author=author_of(request)
    )
