"""The logs of sessions over REST."""

from http import HTTPStatus
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.http.query import IntegerParameter, Query
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.telemetry.apis.serializers import SessionLogOutput
from seamlessflow.control_plane.telemetry.selectors.logs import session_log_read
from seamlessflow.control_plane.trajectories.selectors.sessions import session_get_visible
from seamlessflow.core.access.operations import Operation


class SessionLogQuery(Query):
    offset = IntegerParameter(
        "First byte to read, counted from the first one printed. Default: 0.", default=0
    )


class SessionLogsApi(ProjectApi):
    @endpoint("session_logs", Operation.PROJECT_READ, SessionLogOutput, query=SessionLogQuery)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Read a part of what a session printed: its program's standard output and errors.

        To follow a log, read on from `next_offset`. While a session runs, its log is stored ever
        less often, and when it ends, whole. Deleted logs are answered with 410.
        """
        session = session_get_visible(access=self.access, session_id=session_id)
        _check(session.job)
        return Response(SessionLogOutput(session_log_read(session_id=session.id, **self.query)).data)


def _check(job: Job) -> None:
    """Raise ApplicationError (410) if retention or a person deleted the job's logs."""
    if job.logs_deleted_at is not None:
        raise ApplicationError(
            f"the logs of this job were deleted on {job.logs_deleted_at:%Y-%m-%d}", status=HTTPStatus.GONE
        )
