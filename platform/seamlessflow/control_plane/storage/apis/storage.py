"""Storage over REST: its use, the policy that keeps it, and deletions with their dry run."""

from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, ProjectQuery, ProjectsQuery, endpoint
from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.accounts.selectors.access import project_list_readable
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.errors import conflict, field_error
from seamlessflow.control_plane.common.http.query import FlagParameter
from seamlessflow.control_plane.common.http.streaming import in_threads
from seamlessflow.control_plane.jobs.selectors.jobs import job_get_visible
from seamlessflow.control_plane.storage.apis.access import defaults_check, deletion_check
from seamlessflow.control_plane.storage.apis.serializers import (
    DeletionInput,
    DeletionOutput,
    PolicyInput,
    PolicyOutput,
    RemovalOutput,
    StorageOutput,
    StoredJobOutput,
    StoredUploadOutput,
)
from seamlessflow.control_plane.storage.selectors import (
    overrides_of,
    policy_of,
    removal_list,
    stored_jobs,
    stored_uploads,
    uploads_used_by,
    usages_of,
)
from seamlessflow.control_plane.storage.services.deletions import (
    DeletionRequest,
    JudgedDeletion,
    deletions_judge,
    job_parts_judge,
    removals_mark,
)
from seamlessflow.control_plane.storage.services.exports import trajectories_export
from seamlessflow.control_plane.storage.services.retention import policy_edit, policy_plan
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.retention.planner import PlannedRemoval, RemovalKind
from seamlessflow.core.retention.policy import SETTINGS
from seamlessflow.core.types.ids import IdKind, parse_id, show_id

MAX_ITEMS = 500
PARQUET = "application/vnd.apache.parquet"


class StorageApi(ProjectApi):
    @endpoint("storage_get", Operation.PROJECT_READ, page=StorageOutput)
    def get(self, request: Request) -> Response:
        """Show how many bytes your projects use, by project and kind.

        The figures are those of the last measurement, which the platform repeats in the background.
        """
        projects = project_list_readable(access=self.access)
        return self.page(projects, _add_usages)


def _add_usages(page: list[Project]) -> None:
    usages = usages_of([project.id for project in page])
    for project in page:
        project.usage = usages[project.id]  # type: ignore[attr-defined]  # read by StorageOutput


class StorageJobsApi(ProjectApi):
    @endpoint("storage_job_list", Operation.PROJECT_READ, page=StoredJobOutput, query=ProjectsQuery)
    def get(self, request: Request) -> Response:
        """List jobs by the space that they use, the largest first."""
        return self.page(stored_jobs(project_ids=self.project_ids))


class StoredJobApi(ProjectApi):
    @endpoint("storage_job_get", Operation.PROJECT_READ, DeletionOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Show what of a job can be deleted separately.

        Each item has its size. One that must stay has the reason in `refusal`.
        """
        job = job_get_visible(access=self.access, job_id=job_id)
        return Response(_answer(job_parts_judge(job, now=database_now()), is_dry_run=True))


class StorageUploadsApi(ProjectApi):
    @endpoint("storage_upload_list", Operation.PROJECT_READ, page=StoredUploadOutput, query=ProjectsQuery)
    def get(self, request: Request) -> Response:
        """List uploads by the space that they use, the largest first."""
        uploads = stored_uploads(project_ids=self.project_ids)
        return self.page(uploads, uploads_used_by)


class PolicyQuery(ProjectQuery):
    installation = FlagParameter(
        "Use the installation's defaults instead of a project's policy.", default=False
    )


class StoragePolicyApi(ProjectApi):
    @endpoint("storage_policy_get", Operation.PROJECT_READ, PolicyOutput, query=PolicyQuery)
    def get(self, request: Request) -> Response:
        """Show the retention policy of a project, or with `installation` the defaults.

        Each setting has its value in force, its default and its bounds.
        """
        return Response(_policy(self._subject))

    @endpoint(
        "storage_policy_edit", Operation.RETENTION_EDIT, PolicyOutput, query=PolicyQuery, request=PolicyInput
    )
    def patch(self, request: Request) -> Response:
        """Edit the retention policy of a project, or with `installation` the defaults.

        Owners edit the policy of their project. Only operators edit the defaults and
        `ledger_exact_days`. `reset` names the settings that take their default again.
        """
        project = self._subject
        if project is None:
            defaults_check(self.access)
        changes, reset = self.body["settings"], self.body["reset"]
        policy_edit(project=project, changes=changes, reset=reset, author=self.access.author)
        return Response(_policy(project))

    @property
    def _subject(self) -> Project | None:
        """The project whose policy is meant; None for the installation."""
        return None if self.query["installation"] else self.project


class StoragePlanApi(ProjectApi):
    @endpoint("storage_plan", Operation.PROJECT_READ, DeletionOutput, query=ProjectQuery)
    def get(self, request: Request) -> Response:
        """Show the deletions that the retention policy of a project asks for now. Nothing is deleted."""
        planned = policy_plan(self.project.id, now=database_now())
        return Response(_answer([JudgedDeletion(removal, "") for removal in planned], is_dry_run=True))


class JobTrajectoriesApi(ProjectApi):
    @endpoint("job_trajectories_export", Operation.PROJECT_READ, {(200, PARQUET): OpenApiTypes.BINARY})
    def get(self, request: Request, job_id: UUID, table: str) -> StreamingHttpResponse:
        """Download the trajectories of a job as Parquet.

        `sessions.parquet` has one row for each session that has ended. `nodes.parquet` has one row
        for each node of their trees, with tokens, logprobs and policy versions. Trajectories that
        were deleted and not kept as files are answered 410.
        """
        job = job_get_visible(access=self.access, job_id=job_id)
        chunks = trajectories_export(job, table)
        name = f"{show_id(IdKind.JOB, job_id)}-{table}"
        return StreamingHttpResponse(
            in_threads(chunks),
            content_type=PARQUET,
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )


class StorageDeletionsApi(ProjectApi):
    @endpoint("storage_deletion_list", Operation.PROJECT_READ, page=RemovalOutput, query=ProjectsQuery)
    def get(self, request: Request) -> Response:
        """List deletions of the last 90 days and those in progress, newest first."""
        return self.page(removal_list(project_ids=self.project_ids))

    @endpoint(
        "storage_delete", Operation.DELETION_ASK, DeletionOutput, query=ProjectQuery, request=DeletionInput
    )
    def post(self, request: Request) -> Response:
        """Delete jobs, parts of jobs or uploads; with `dry_run`, only show what that would free.

        Either all items are deleted or none: if one of them must stay, the request is refused (409)
        and `detail` names the first. Members delete what they created themselves, owners everything
        in the project.
        """
        project, body = self.project, self.body
        requests = [_deletion_request(item, index) for index, item in enumerate(body["items"])]
        if not body["dry_run"]:
            _owners_check(self, project, requests)
        judged = deletions_judge(
            project_id=project.id, requests=requests, reason=body["reason"], now=database_now()
        )
        if not body["dry_run"]:
            _refusals_check(judged)
            removals_mark(
                project_id=project.id,
                planned=[one.removal for one in judged],
                author=self.access.author,
                is_strict=True,
            )
        return Response(_answer(judged, is_dry_run=body["dry_run"]))


def _owners_check(api: ProjectApi, project: Project, requests: list[DeletionRequest]) -> None:
    for request in requests:
        deletion_check(api.access, project, kind=request.kind, subject=request.subject)


def _refusals_check(judged: list[JudgedDeletion]) -> None:
    refused = next((one for one in judged if one.refusal), None)
    if refused is not None:
        name = f" of {refused.removal.name!r}" if refused.removal.name else ""
        raise conflict(f"nothing was deleted: the {refused.removal.kind}{name} must stay: {refused.refusal}")


def _deletion_request(item: dict[str, Any], index: int) -> DeletionRequest:
    kind = RemovalKind(item["kind"])
    id_kind = IdKind.ARTIFACT if kind is RemovalKind.UPLOAD else IdKind.JOB
    try:
        subject: UUID = parse_id(id_kind, item["id"])
    except ValueError as error:
        raise field_error(f"items.{index}.id", str(error)) from error
    is_numbered = kind in (RemovalKind.VERSION, RemovalKind.CHECKPOINT)
    if is_numbered != (item.get("number") is not None):
        wanted = "is needed" if is_numbered else "must be left out unless `kind` is version or checkpoint"
        raise field_error(f"items.{index}.number", wanted)
    return DeletionRequest(kind, subject, item.get("number"))


def _policy(project: Project | None) -> dict[str, Any]:
    own = overrides_of(None if project is None else project.id)
    inherited = policy_of(None)
    effective = policy_of(None if project is None else project.id)
    rows = [
        {
            "name": name,
            "value": effective.values[name],
            "is_own": name in own,
            "default": setting.default if project is None else inherited.values[name],
            "minimum": setting.minimum,
            "maximum": setting.maximum,
            "unit": setting.unit,
            "may_be_none": setting.may_be_none,
            "is_of_installation": setting.is_of_installation,
            "help": setting.help,
        }
        for name, setting in SETTINGS.items()
    ]
    return dict(PolicyOutput({"project": project.slug if project else None, "settings": rows}).data)


def _answer(judged: list[JudgedDeletion], *, is_dry_run: bool) -> dict[str, Any]:
    rows = [_row(one.removal, one.refusal) for one in judged]
    freed = sum(one.removal.num_bytes for one in judged if not one.refusal)
    return dict(DeletionOutput({"dry_run": is_dry_run, "num_bytes": freed, "items": rows}).data)


def _row(removal: PlannedRemoval, refusal: str) -> dict[str, Any]:
    id_kind = IdKind.ARTIFACT if removal.kind is RemovalKind.UPLOAD else IdKind.JOB
    return {
        "kind": removal.kind.value,
        "id": show_id(id_kind, removal.subject),
        "number": removal.number,
        "name": removal.name,
        "num_bytes": removal.num_bytes,
        "reason": removal.reason,
        "refusal": refusal,
    }
