"""The queue over REST."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, ProjectsQuery, endpoint
from seamlessflow.control_plane.accounts.services.members import project_get
from seamlessflow.control_plane.scheduling.apis.queue_serializers import QueueEntryOutput
from seamlessflow.control_plane.scheduling.selectors.queues import VisibleQueue
from seamlessflow.core.access.operations import Operation


class QueueApi(ProjectApi):
    @endpoint("queue_list", Operation.PROJECT_READ, page=QueueEntryOutput, query=ProjectsQuery)
    def get(self, request: Request) -> Response:
        """List the jobs that wait for machines, or that could use more than they have.

        Jobs that wait to begin come first, in the order in which they are served. Each says what it lacks, who holds
        the machines that would fit, until when as far as that is known, and what would help, the cheapest first.
        Jobs of projects that you cannot read are counted, but never named.
        """
        slug, access = self.query["project"], self.access
        readable = access.readable
        if slug is not None:
            project = project_get(access=access, slug=slug, operation=self.endpoint.operation)
            readable = frozenset({project.id})
        queue = VisibleQueue(access, readable)

        def explain(page: list[Any]) -> None:
            page[:] = queue.show(page)

        return self.page(queue.entries, explain)
