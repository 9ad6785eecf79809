"""The queue over REST."""

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi
from seamlessflow.control_plane.accounts.services.members import project_get
from seamlessflow.control_plane.common.http.pages import PAGE_PARAMETERS, page_response, page_serializer
from seamlessflow.control_plane.scheduling.apis.queue_serializers import QueueEntryOutput
from seamlessflow.control_plane.scheduling.selectors.queues import VisibleQueue
from seamlessflow.core.access.operations import Operation


class QueueApi(ProjectApi):
    @extend_schema(
        operation_id="queue_list",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("project", description="Slug of a project. Default: all that you can read."),
        ],
        responses=page_serializer(QueueEntryOutput),
    )
    def get(self, request: Request) -> Response:
        """List the jobs that wait for machines, or that could use more than they have.

        Jobs that wait to begin come first, in the order in which they are served. Each says what it lacks, who holds
        the machines that would fit, until when as far as that is known, and what would help, the cheapest first.
        Jobs of projects that you cannot read are counted, but never named.
        """
        slug, access = request.query_params.get("project"), self.access
        readable = access.readable
        if slug is not None:
            project = project_get(access=access, slug=slug, operation=Operation.PROJECT_READ)
            readable = frozenset({project.id})
        queue = VisibleQueue(access, readable)

        def explain(page: list[Any]) -> None:
            page[:] = queue.show(page)

        return page_response(request, queue.entries, QueueEntryOutput, prepare=explain)
