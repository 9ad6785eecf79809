"""Jobs in the admin site: people can read everything, and pause, resume or cancel jobs."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from seamlessflow.control_plane.accounts.admin.access import rows_allowed
from seamlessflow.control_plane.common.admin.pages import ReadOnlyAdmin, ReasonActionForm, author_of
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.services.moves import job_desire
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.lifecycle.jobs import DesiredJobState


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "state", "desired", "latest_version", "waiting_reason", "created_at"]
    list_filter = ["state", "project"]
    list_select_related = ["project"]
    ordering = ["-created_at"]
    search_fields = ["name", "=id"]
    search_help_text = "Part of the name, or an ID (job_01h…)."
    action_form = ReasonActionForm
    actions = ["pause", "resume", "cancel"]

    @admin.action(description="Pause: free the machines, keep the state")
    def pause(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._desire(request, jobs, DesiredJobState.PAUSE)

    @admin.action(description="Resume")
    def resume(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._desire(request, jobs, DesiredJobState.RUN)

    @admin.action(description="Cancel")
    def cancel(self, request: HttpRequest, jobs: QuerySet[Job]) -> None:
        self._desire(request, jobs, DesiredJobState.CANCEL)

    def _desire(self, request: HttpRequest, jobs: QuerySet[Job], desired: DesiredJobState) -> None:
        reason = request.POST.get("reason", "").strip() or "asked for in the admin site"
        allowed = rows_allowed(
            self,
            request,
            jobs,
            Operation.JOB_EDIT,
            project_of=lambda job: job.project_id,
            author_of=lambda job: job.created_by_id,
        )
        for job in allowed:
            try:
                job_desire(job_id=job.id, desired=desired, reason=reason, author=author_of(request))
            except ApplicationError as error:
                self.message_user(request, f"{job.name}: {error.detail}", level="warning")
