"""Jobs in the admin site: everything to see, one thing to do."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from seamlessflow.control_plane.common.admin import ReadOnlyAdmin, author_of
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.services import job_desire
from seamlessflow.core.lifecycle.jobs import DesiredJobState


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "state", "desired", "latest_version", "waiting_reason", "created_at"]
    list_filter = ["state", "project"]
    list_select_related = ["project"]
    search_fields = ["name", "=id"]
    actions = ["cancel"]

    @admin.action(description="Cancel")
    def cancel(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        for job in jobs:
            try:
                job_desire(
                    job_id=job.id,
                    desired=DesiredJobState.CANCEL,
                    reason="cancelled in the admin site",
                    author=author_of(request),
                )
            except ApplicationError as error:
                self.message_user(request, f"{job.name}: {error.detail}", level="warning")
