"""The results of a job over REST."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.jobs.selectors.jobs import job_get_visible
from seamlessflow.control_plane.telemetry.apis.serializers import SummaryOutput
from seamlessflow.control_plane.telemetry.selectors.ledger import job_ledger
from seamlessflow.control_plane.trajectories.selectors.summary import job_summary
from seamlessflow.core.access.operations import Operation


class JobSummaryApi(ProjectApi):
    @endpoint("job_summary", Operation.PROJECT_READ, SummaryOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Summarise a job: learning, throughput, hand-overs, and where the time of its machines went."""
        job = job_get_visible(access=self.access, job_id=job_id)
        now = database_now()
        time = job_ledger(job=job, now=now, readable=self.access.readable)
        return Response(SummaryOutput({"time": time, **job_summary(job, now=now)}).data)
