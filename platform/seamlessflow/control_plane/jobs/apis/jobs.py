"""Jobs over REST: submit, list, show, cancel, pause, resume, and what belongs to a job."""

from http import HTTPStatus
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, ProjectQuery, endpoint
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.http.etags import etag, if_match, if_match_parameter
from seamlessflow.control_plane.common.http.fields import LimitedInteger, ReasonField
from seamlessflow.control_plane.common.http.pages import PageQuery
from seamlessflow.control_plane.common.http.parsers import JsonParser, YamlParser
from seamlessflow.control_plane.common.http.query import FlagParameter, TextParameter, WordsParameter
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


class JobsQuery(PageQuery):
    state = WordsParameter("One or several states", words=list(JobState))
    needs_attention = FlagParameter("Whether the platform paused the job because something failed.")
    search = TextParameter(
        "Part of the job's name or of the owner's name, or a whole identifier.", default=""
    )


REPEATABLE = OpenApiParameter(
    HEADER,
    location=OpenApiParameter.HEADER,
    description=(
        "Makes it safe to repeat the request: the same key and spec give the same job (200); the same key with another "
        "spec is refused (422)."
    ),
)


class JobListSubmitApi(ProjectApi):
    parser_classes = [JsonParser, YamlParser]

    @endpoint("job_list", Operation.PROJECT_READ, page=JobListItemOutput, query=JobsQuery)
    def get(self, request: Request) -> Response:
        """List the jobs that you can read, newest first.

        With a project's token, these are the jobs of its project. `state`, `needs_attention` and `search` narrow the
        list.
        """
        jobs = job_list_visible(
            access=self.access,
            states=self.query["state"],
            needs_attention=self.query["needs_attention"],
            search=self.query["search"].strip(),
        )
        return self.page(jobs, _add_curves)

    @endpoint(
        "job_submit",
        Operation.JOB_SUBMIT,
        {201: JobDetailOutput, 200: JobDetailOutput},
        query=ProjectQuery,
        headers=[REPEATABLE],
        request={"application/json": OpenApiTypes.OBJECT, "application/yaml": OpenApiTypes.OBJECT},
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
        job, is_new = job_submit_once(
            project=self.project,
            user=self.access.user,
            submitted=request.data,
            author=self.access.author,
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

    def job_to_edit(self, job_id: UUID) -> Job:
        """Return the job, whose author decides who may edit it. Raises ApplicationError."""
        job = self.job(job_id)
        self.access.check(self.endpoint.operation, job.project_id, author_id=job.created_by_id)
        return job


class JobEditInput(serializers.Serializer):
    priority = LimitedInteger(Priority)
    reason = ReasonField(is_required=False)


class JobDetailApi(_JobApi):
    @endpoint("job_get", Operation.PROJECT_READ, JobDetailOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Show a job: its state, its progress, and its spec as submitted and with all defaults.

        The `ETag` of the answer is the generation that an edit must name.
        """
        return _job_response(self.job(job_id))

    @endpoint(
        "job_edit",
        Operation.JOB_EDIT,
        JobDetailOutput,
        headers=[if_match_parameter("job")],
        request=JobEditInput,
    )
    def patch(self, request: Request, job_id: UUID) -> Response:
        """Change the priority of a job while it waits or runs.

        `If-Match` holds the generation that the edit is based on. Without it the request is refused (428); if another
        asked something else of the job in the meantime, it is refused as well (412). The next scheduling cycle serves
        the job by its new priority; a job that has ended is refused (409). An edit that changes nothing records
        nothing.
        """
        job = self.job_to_edit(job_id)
        generation = if_match(request, "job")
        job_prioritize(job_id=job.id, generation=generation, author=self.access.author, **self.body)
        return _job_response(self.job(job_id))


def _job_response(job: Job) -> Response:
    return Response(job_detail(job), headers=etag(job.generation))


class JobDesireInput(serializers.Serializer):
    reason = ReasonField(is_required=False)


class _JobDesireApi(_JobApi):
    """Edits the desired state of a job; the scheduler does the rest."""

    desired: DesiredJobState

    def _desire(self, request: Request, job_id: UUID) -> Response:
        job = self.job_to_edit(job_id)
        job_desire(job_id=job.id, desired=self.desired, author=self.access.author, **self.body)
        return Response(job_detail(self.job(job_id)))


class JobCancelApi(_JobDesireApi):
    desired = DesiredJobState.CANCEL

    @endpoint("job_cancel", Operation.JOB_EDIT, JobDetailOutput, request=JobDesireInput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Cancel a job.

        The job moves to `cancelling` and then to `cancelled`: sessions are stopped and the current
        training step is discarded. Versions, checkpoints and trajectories stay. Repeating the
        request changes nothing. A job that has ended is refused (409).
        """
        return self._desire(request, job_id)


class JobPauseApi(_JobDesireApi):
    desired = DesiredJobState.PAUSE

    @endpoint("job_pause", Operation.JOB_EDIT, JobDetailOutput, request=JobDesireInput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Pause a job.

        The agents and the trainer finish or requeue their work, then the job gives up its machines.
        Versions, checkpoints, batches and groups stay, and the job can be resumed. Repeating the
        request changes nothing. A job that has ended or is being cancelled is refused (409).
        """
        return self._desire(request, job_id)


class JobResumeApi(_JobDesireApi):
    desired = DesiredJobState.RUN

    @endpoint("job_resume", Operation.JOB_EDIT, JobDetailOutput, request=JobDesireInput)
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
    @endpoint("job_stage_switch", Operation.JOB_EDIT, JobDetailOutput, request=JobStageInput)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Switch a job to another stage of its curriculum.

        Groups that begin from now on are drawn from this stage. A stage that is not in the spec is refused (400), and
        so is a job that has ended (409).
        """
        job = self.job_to_edit(job_id)
        job_stage_switch(job_id=job.id, author=self.access.author, **self.body)
        return Response(job_detail(self.job(job_id)))


class JobVersionListApi(_JobApi):
    @endpoint("job_version_list", Operation.PROJECT_READ, page=PolicyVersionOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the policy versions that a job has published, with size, checksum and checkpoint."""
        return self.page(job_version_list(job=self.job(job_id)))


class EventsQuery(PageQuery):
    subject = WordsParameter("One or several subjects", words=EVENT_SUBJECTS)


class JobEventListApi(_JobApi):
    @endpoint("job_event_list", Operation.PROJECT_READ, page=EventOutput, query=EventsQuery)
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the events of a job, newest first.

        An event records one change: what changed, from which state to which, when, why, and who
        asked for it.
        """
        return self.page(job_event_list(job=self.job(job_id), subjects=self.query["subject"]))


class JobPhaseListApi(_JobApi):
    @endpoint("job_phase_list", Operation.PROJECT_READ, page=PhaseOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the phases of a job: which machine worked for it, in which role, and when."""
        return self.page(job_phase_list(job=self.job(job_id)))
