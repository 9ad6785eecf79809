"""Storage over REST: its use, the policy that keeps it, and deletions with their dry run."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi
from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.accounts.selectors.access import project_for, project_list_readable
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.errors import conflict, field_error
from seamlessflow.control_plane.common.http.bodies import body_read
from seamlessflow.control_plane.common.http.pages import PAGE_PARAMETERS, page_response, page_serializer
from seamlessflow.control_plane.common.http.query import query_boolean
from seamlessflow.control_plane.common.http.streaming import in_threads
from seamlessflow.control_plane.jobs.selectors.jobs import job_get_visible
from seamlessflow.control_plane.storage.apis.access import deletion_check, policy_check
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
PROJECT = OpenApiParameter(
    "project", description="Slug of the project. May be left out if you are in one project only."
)
ONE_PROJECT = OpenApiParameter(
    "project", description="Slug of the project. Default: all projects that you can read."
)
INSTALLATION = OpenApiParameter(
    "installation",
    OpenApiTypes.BOOL,
    description="Use the installation's defaults instead of a project's policy.",
)


class StorageApi(ProjectApi):
    @extend_schema(
        operation_id="storage_get", parameters=PAGE_PARAMETERS, responses=page_serializer(StorageOutput)
    )
    def get(self, request: Request) -> Response:
        """Show how many bytes your projects use, by project and kind.

        The figures are those of the last measurement, which the platform repeats in the background.
        """
        projects = project_list_readable(access=self.access)
        return page_response(request, projects, StorageOutput, prepare=_add_usages)


def _add_usages(page: list[Project]) -> None:
    usages = usages_of([project.id for project in page])
    for project in page:
        project.usage = usages[project.id]  # type: ignore[attr-defined]  # read by StorageOutput


class StorageJobsApi(ProjectApi):
    @extend_schema(
        operation_id="storage_job_list",
        parameters=[*PAGE_PARAMETERS, ONE_PROJECT],
        responses=page_serializer(StoredJobOutput),
    )
    def get(self, request: Request) -> Response:
        """List jobs by the space that they use, the largest first."""
        return page_response(request, stored_jobs(project_ids=_readable(self, request)), StoredJobOutput)


class StoredJobApi(ProjectApi):
    @extend_schema(operation_id="storage_job_get", responses=DeletionOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Show what of a job can be deleted separately.

        Each item has its size. One that must stay has the reason in `refusal`.
        """
        job = job_get_visible(access=self.access, job_id=job_id)
        return Response(_answer(job_parts_judge(job, now=database_now()), is_dry_run=True))


class StorageUploadsApi(ProjectApi):
    @extend_schema(
        operation_id="storage_upload_list",
        parameters=[*PAGE_PARAMETERS, ONE_PROJECT],
        responses=page_serializer(StoredUploadOutput),
    )
    def get(self, request: Request) -> Response:
        """List uploads by the space that they use, the largest first."""
        uploads = stored_uploads(project_ids=_readable(self, request))
        return page_response(request, uploads, StoredUploadOutput, prepare=uploads_used_by)


class StoragePolicyApi(ProjectApi):
    @extend_schema(
        operation_id="storage_policy_get", parameters=[PROJECT, INSTALLATION], responses=PolicyOutput
    )
    def get(self, request: Request) -> Response:
        """Show the retention policy of a project, or with `installation` the defaults.

        Each setting has its value in force, its default and its bounds.
        """
        return Response(_policy(_project(self, request)))

    @extend_schema(
        operation_id="storage_policy_edit",
        parameters=[PROJECT, INSTALLATION],
        request=PolicyInput,
        responses=PolicyOutput,
    )
    def patch(self, request: Request) -> Response:
        """Edit the retention policy of a project, or with `installation` the defaults.

        Owners edit the policy of their project. Only operators edit the defaults and
        `ledger_exact_days`. `reset` names the settings that take their default again.
        """
        project = _project(self, request, Operation.RETENTION_EDIT)
        policy_check(self.access, project)
        body = body_read(request, PolicyInput)
        policy_edit(project=project, changes=body["settings"], reset=body["reset"], author=self.access.author)
        return Response(_policy(project))


class StoragePlanApi(ProjectApi):
    @extend_schema(operation_id="storage_plan", parameters=[PROJECT], responses=DeletionOutput)
    def get(self, request: Request) -> Response:
        """Show the deletions that the retention policy of a project asks for now. Nothing is deleted."""
        project = _project_named(self, request)
        planned = policy_plan(project.id, now=database_now())
        return Response(_answer([JudgedDeletion(removal, "") for removal in planned], is_dry_run=True))


class JobTrajectoriesApi(ProjectApi):
    @extend_schema(
        operation_id="job_trajectories_export",
        responses={(200, PARQUET): OpenApiTypes.BINARY},
    )
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
    @extend_schema(
        operation_id="storage_deletion_list",
        parameters=[*PAGE_PARAMETERS, ONE_PROJECT],
        responses=page_serializer(RemovalOutput),
    )
    def get(self, request: Request) -> Response:
        """List deletions of the last 90 days and those in progress, newest first."""
        return page_response(request, removal_list(project_ids=_readable(self, request)), RemovalOutput)

    @extend_schema(
        operation_id="storage_delete",
        parameters=[PROJECT],
        request=DeletionInput,
        responses=DeletionOutput,
    )
    def post(self, request: Request) -> Response:
        """Delete jobs, parts of jobs or uploads; with `dry_run`, only show what that would free.

        Either all items are deleted or none: if one of them must stay, the request is refused (409)
        and `detail` names the first. Members delete what they created themselves, owners everything
        in the project.
        """
        project = _project_named(self, request, Operation.DELETION_ASK)
        body = body_read(request, DeletionInput)
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


def _project_named(
    api: ProjectApi, request: Request, operation: Operation = Operation.PROJECT_READ
) -> Project:
    return project_for(access=api.access, slug=request.query_params.get("project"), operation=operation)


def _project(
    api: ProjectApi, request: Request, operation: Operation = Operation.PROJECT_READ
) -> Project | None:
    """Return the project that is named; None for the installation."""
    if query_boolean(request, "installation"):
        return None
    return _project_named(api, request, operation)


def _readable(api: ProjectApi, request: Request) -> Collection[UUID]:
    """Return the id of the named project, or the ids of all that the caller can read."""
    is_named = "project" in request.query_params
    return [_project_named(api, request).id] if is_named else api.access.readable


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
