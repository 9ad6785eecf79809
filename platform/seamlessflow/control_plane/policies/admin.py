"""Policy versions in the admin site; pinning keeps one from retention."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from seamlessflow.control_plane.accounts.admin.access import rows_allowed
from seamlessflow.control_plane.common.admin.pages import ReadOnlyAdmin, author_of
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.policies.services.pins import version_pin
from seamlessflow.core.access.operations import Operation


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnlyAdmin):
    list_display = ["job", "version", "batch_number", "num_bytes", "is_pinned", "published_at", "deleted_at"]
    list_filter = ["is_pinned"]
    list_select_related = ["job"]
    ordering = ["-id"]  # identifiers sort by age
    search_fields = ["=job__id", "job__name"]
    search_help_text = "Part of the job's name, or its ID (job_01h…)."
    actions = ["pin", "unpin"]

    @admin.action(description="Pin: retention keeps its weights")
    def pin(self, request: HttpRequest, versions: QuerySet[PolicyVersion]) -> None:
        self._pin(request, versions.filter(deleted_at=None), is_pinned=True)

    @admin.action(description="Unpin: retention may delete its weights")
    def unpin(self, request: HttpRequest, versions: QuerySet[PolicyVersion]) -> None:
        self._pin(request, versions, is_pinned=False)

    def _pin(self, request: HttpRequest, versions: QuerySet[PolicyVersion], *, is_pinned: bool) -> None:
        allowed = rows_allowed(
            self,
            request,
            versions.select_related("job"),
            Operation.JOB_EDIT,
            project_of=lambda version: version.project_id,
            author_of=lambda version: version.job.created_by_id,
        )
        for version in allowed:
            version_pin(version=version, is_pinned=is_pinned, author=author_of(request))
