"""Jobs over REST: submit, list, show, cancel, pause, resume, and what belongs to a job."""

from http import HTTPStatus
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi
from seamlessflow.control_plane.accounts.selectors.access import project_for
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.http.bodies import body_read
from seamlessflow.control_plane.common.http.etags import etag, if_match, if_match_parameter
from seamlessflow.control_plane.common.http.fields import LimitedInteger, ReasonField
from seamlessflow.control_plane.common.http.pages import (
    PAGE_PARAMETERS,
    page_response,
    page_serializer,
)
from seamlessflow.control_plane.common.http.parsers import JsonParser, YamlParser
from seamlessflow.control_plane.common.http.query import query_boolean
from seamlessflow.control_plane.jobs.apis.serializers import (
    EventOutput,
    JobDetailOutput,
    JobListItemOutput,
    PhaseOutput,
    PolicyVersionOutput,
    job_detail,
)
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.selectors.jobs import (
    EVENT_SUBJECTS,
    job_event_list,
    job_get_visible,
    job_list_visible,
    job_phase_list,
    job_version_list,
)
from seamlessflow.control_plane.jobs.services.moves import job_desire, job_prioritize, job_stage_switch
from seamlessflow.control_plane.jobs.services.reward_curves import job_reward_curves
from seamlessflow.control_plane.jobs.submission.repeats import HEADER, job_submit_once
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState
from seamlessflow.core.types.limits import Priority


class JobListSubmitApi(ProjectApi):
    parser_classes = [JsonParser, YamlParser]

    @extend_schema(
        operation_id="job_list",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter(
                "state", description=f"One or several states, separated by commas: {', '.join(JobState)}."
            ),
            OpenApiParameter(
                "needs_attention",
                enum=["true", "false"],
                description="Whether the platform paused the job because something failed.",
            ),
            OpenApiParameter(
                "search",
                description="Part of the job's name or of the owner's name, or a whole identifier.",
            ),
        ],
        responses=page_serializer(JobListItemOutput),
    )
    def get(self, request: Request) -> Response:
        """List the jobs that you can read, newest first.

        With a project's token, these are the jobs of its project. `state`, `needs_attention` and `search` narrow the
        list.
        """
        query = request.query_params
        jobs = job_list_visible(
            access=self.access,
            state=query.get("state"),
            needs_attention=query_boolean(request, "needs_attention") if "needs_attention" in query else None,
            search=query.get("search", "").strip(),
        )
        return page_response(request, jobs, JobListItemOutput, prepare=_add_curves)

    @extend_schema(
        operation_id="job_submit",
        parameters=[
            OpenApiParameter(
                "project", description="Slug of the project. May be left out if you are in one project only."
            ),
            OpenApiParameter(
                HEADER,
                location=OpenApiParameter.HEADER,
                description=(
                    "Makes it safe to repeat the request: the same key and spec give the same job (200); the same "
                    "key with another spec is refused (422)."
                ),
            ),
        ],
        request={"application/json": OpenApiTypes.OBJECT, "application/yaml": OpenApiTypes.OBJECT},
        responses={201: JobDetailOutput, 200: JobDetailOutput},
    )
    def post(self, request: Request) -> Response:
        """Submit a job.

        The body is a job spec, as JSON or YAML: see `api_schema/job_spec.schema.json`. The answer is 201 with the job,
        whose `spec` has every default filled in, or 200 if the `Idempotency-Key` was used for the same spec before. An
        invalid spec is refused (400), and `errors` names each field. A key that was used with another spec is refused
        (422).
        """
        if not isinstance(request.data, dict):
            raise ApplicationError("the body must be a mapping: a job spec")
        access = self.access
        project = project_for(
            access=access, slug=request.query_params.get("project"), operation=Operation.JOB_SUBMIT
        )
        job, is_new = job_submit_once(
            project=project,
            user=access.user,
            submitted=request.data,
            author=access.author,
            key=request.headers.get(HEADER),
        )
        return Response(job_detail(job), status=HTTPStatus.CREATED if is_new else HTTPStatus.OK)


def _add_curves(page: list[Job]) -> None:
    curves = job_reward_curves(job.id for job in page)
    for job in page:
        job.reward_curve = curves.get(job.id, [])  # type: ignore[attr-defined]  # read by JobListItemOutput


class _JobApi(ProjectApi):
    def job(self, job_id: UUID) -> Job:
        return job_get_visible(access=self.access, job_id=job_id)


class JobEditInput(serializers.Serializer):
    priority = LimitedInteger(Priority)
    reason = ReasonField(is_required=False)


class JobDetailApi(_JobApi):
    @extend_schema(operation_id="job_get", responses=JobDetailOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Show a job: its state, its progress, and its spec as submitted and with all defaults.

        The `ETag` of the answer is the generation that an edit must name.
        """
        return _job_response(self.job(job_id))

    @extend_schema(
        operation_id="job_edit",
        parameters=[if_match_parameter("job")],
        request=JobEditInput,
        responses=JobDetailOutput,
    )
    def patch(self, request: Request, job_id: UUID) -> Response:
        """Change the priority of a job while it waits or runs.

        `If-Match` holds the generation that the edit is based on. Without it the request is refused (428); if another
        asked something else of the job in the meantime, it is refused as well (412). The next scheduling cycle serves
        the job by its new priority; a job that has ended is refused (409). An edit that changes nothing records
        nothing.
        """
        job = self.job(job_id)
        self.access.check(Operation.JOB_EDIT, job.project_id, author_id=job.created_by_id)
        generation = if_match(request, "job")
        body = body_read(request, JobEditInput)
        job_prioritize(job_id=job.id, generation=generation, author=self.access.author, **body)
        return _job_response(self.job(job_id))


def _job_response(job: Job) -> Response:
    return Response(job_detail(job), headers=etag(job.generation))


class JobDesireInput(serializers.Serializer):
    reason = ReasonField(is_required=False)


class _JobDesireApi(_JobApi):
    """Edits the desired state of a job; the scheduler does the rest."""

    desired: DesiredJobState

    def _desire(self, request: Request, job_id: UUID) -> Response:
        body = body_read(request, JobDesireInput)
        job = self.job(job_id)
        self.access.check(Operation.JOB_EDIT, job.project_id, author_id=job.created_by_id)
        job_desire(
            job_id=job.id,
            desired=self.desired,
            reason=body["reason"],
            author=self.access.author,
        )
        return Response(job_detail(self.job(job_id)))


class JobCancelApi(_JobDesireApi):
    desired = DesiredJobState.CANCEL

    @extend_schema(operation_id="job_cancel", request=JobDesireInput, responses=JobDetailOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Cancel a job.

        The job moves to `cancelling` and then to `cancelled`: sessions are stopped and the current
        training step is discarded. Versions, checkpoints and trajectories stay. Repeating the
        request changes nothing. A job that has ended is refused (409).
        """
        return self._desire(request, job_id)


class JobPauseApi(_JobDesireApi):
    desired = DesiredJobState.PAUSE

    @extend_schema(operation_id="job_pause", request=JobDesireInput, responses=JobDetailOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Pause a job.

        The agents and the trainer finish or requeue their work, then the job gives up its machines.
        Versions, checkpoints, batches and groups stay, and the job can be resumed. Repeating the
        request changes nothing. A job that has ended or is being cancelled is refused (409).
        """
        return self._desire(request, job_id)


class JobResumeApi(_JobDesireApi):
    desired = DesiredJobState.RUN

    @extend_schema(operation_id="job_resume", request=JobDesireInput, responses=JobDetailOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Resume a paused job.

        The job gets machines again as soon as some fit. Repeating the request changes nothing. A
        job that has ended or is being cancelled is refused (409).
        """
        return self._desire(request, job_id)


class JobStageInput(serializers.Serializer):
    stage = serializers.CharField(max_length=64, help_text="Name of a stage in `algorithm.stages`.")
    reason = ReasonField(is_required=False)


class JobStageApi(_JobApi):
    @extend_schema(operation_id="job_stage_switch", request=JobStageInput, responses=JobDetailOutput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Switch a job to another stage of its curriculum.

        Groups that begin from now on are drawn from this stage. A stage that is not in the spec is refused (400), and
        so is a job that has ended (409).
        """
        job = self.job(job_id)
        self.access.check(Operation.JOB_EDIT, job.project_id, author_id=job.created_by_id)
        body = JobStageInput(data=request.data)
        body.is_valid(raise_exception=True)
        job_stage_switch(job_id=job.id, author=self.access.author, **body.validated_data)
        return Response(job_detail(self.job(job_id)))


class JobVersionListApi(_JobApi):
    @extend_schema(
        operation_id="job_version_list",
        parameters=PAGE_PARAMETERS,
        responses=page_serializer(PolicyVersionOutput),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the policy versions that a job has published, with size, checksum and checkpoint."""
        return page_response(request, job_version_list(job=self.job(job_id)), PolicyVersionOutput)


class JobEventListApi(_JobApi):
    @extend_schema(
        operation_id="job_event_list",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter(
                "subject",
                description=f"One or several subjects, separated by commas: {', '.join(EVENT_SUBJECTS)}.",
            ),
        ],
        responses=page_serializer(EventOutput),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the events of a job, newest first.

        An event records one change: what changed, from which state to which, when, why, and who
        asked for it.
        """
        events = job_event_list(job=self.job(job_id), subject=request.query_params.get("subject"))
        return page_response(request, events, EventOutput)


class JobPhaseListApi(_JobApi):
    @extend_schema(
        operation_id="job_phase_list", parameters=PAGE_PARAMETERS, responses=page_serializer(PhaseOutput)
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the phases of a job: which machine worked for it, in which role, and when."""
        return page_response(request, job_phase_list(job=self.job(job_id)), PhaseOutput)
