"""Shares of projects as a person sees them: weight, quota, entitlement, and the machines that they have, borrow or
lend.

Takes a page of projects. Reads one snapshot and the ledger of the last hour, whatever the number of projects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import QuerySet

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.accounts.selectors.access import Access, project_list_readable
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.scheduling.selectors.queue_keeper import KEEPER
from seamlessflow.control_plane.telemetry.selectors.project_time import project_seconds
from seamlessflow.core.scheduling.explain.entitlements import Entitlement, entitlements

WINDOW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ProjectShare:
    project: Project
    now: Entitlement
    machine_s: float  # in the last hour

    @property
    def num_borrowed(self) -> float:
        """How many machines it has beyond its entitlement; below zero if it has fewer."""
        return self.now.shared_cost - self.now.entitled


def share_projects(*, access: Access) -> QuerySet[Project]:
    """List the projects whose shares the caller may see: their own, or all for operators, who edit them."""
    return Project.objects.order_by("slug") if access.is_operator else project_list_readable(access=access)


def project_shares(projects: Sequence[Project]) -> list[ProjectShare]:
    by_project, until = entitlements(KEEPER.current().queue), database_now()
    ids = [project.id for project in projects]
    seconds = project_seconds(project_ids=ids, since=until - WINDOW, until=until)
    idle = Entitlement()
    return [ProjectShare(one, by_project.get(one.id, idle), seconds.get(one.id, 0.0)) for one in projects]
