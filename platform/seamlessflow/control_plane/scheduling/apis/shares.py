"""Shares of projects over REST: weight and quota of machines, and what each project has now."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.control_plane.accounts.services.shares import (
    SHARE_FIELDS,
    project_share_edit,
    share_project_get,
)
from seamlessflow.control_plane.common.http.fields import LimitedFloat, LimitedInteger, ReasonField
from seamlessflow.control_plane.scheduling.selectors.project_shares import project_shares, share_projects
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.types.limits import Priority, Quota, Weight

CEILING = "Up to which the priorities of its jobs count against the jobs of other projects."
QUEUED = "The most jobs that it may have in the queue; null: as many as the installation allows."


class ShareOutput(serializers.Serializer):
    project = serializers.CharField(source="project.slug")
    name = serializers.CharField(source="project.name")
    weight = serializers.FloatField(source="project.weight")
    machine_quota = serializers.IntegerField(
        source="project.machine_quota",
        allow_null=True,
        help_text="The most machines and agent slots that its jobs may hold together; null: no limit.",
    )
    priority_ceiling = serializers.IntegerField(
        source="project.priority_ceiling",
        help_text=CEILING,
    )
    queued_jobs_quota = serializers.IntegerField(
        source="project.queued_jobs_quota",
        allow_null=True,
        help_text=QUEUED,
    )
    entitled = serializers.FloatField(
        source="now.entitled",
        help_text=(
            "Machines that roll out or train which it is entitled to, by its weight among the projects that have "
            "jobs; 0 while it has none. Jobs of a higher priority go before that."
        ),
    )
    num_held = serializers.IntegerField(
        source="now.num_held",
        help_text="What it holds now of its quota: machines that roll out or train, and agent slots.",
    )
    num_agent_slots = serializers.IntegerField(
        source="now.num_agent_slots",
        help_text="Agent slots among `num_held`: agents run beside other work, so their machines are not counted.",
    )
    num_borrowed = serializers.FloatField(
        help_text=(
            "Machines that roll out or train for it beyond its entitlement; below zero if it has fewer, which it "
            "lends unless it is short."
        )
    )
    is_short = serializers.BooleanField(
        source="now.is_short", help_text="Whether a job of it gets less than it could use."
    )
    machine_s = serializers.FloatField(
        help_text="Machine-seconds of its jobs in the last hour, by the ledger."
    )


class ShareEditInput(serializers.Serializer):
    weight = LimitedFloat(Weight, required=False)
    machine_quota = LimitedInteger(Quota, required=False, allow_null=True, help_text="Null: no limit.")
    priority_ceiling = LimitedInteger(
        Priority,
        required=False,
        help_text=CEILING,
    )
    queued_jobs_quota = LimitedInteger(
        Quota,
        required=False,
        allow_null=True,
        help_text=QUEUED,
    )
    reason = ReasonField()


class ShareListApi(ProjectApi):
    @endpoint("share_list", Operation.PROJECT_READ, page=ShareOutput)
    def get(self, request: Request) -> Response:
        """List what your projects are entitled to and what they have; operators see all projects.

        While every job has enough, the numbers of a project may be far from its entitlement: what one project does
        not need is lent to others, and comes back with one hand-over when it is wanted.
        """

        def add_shares(page: list[Any]) -> None:
            page[:] = project_shares(page)

        return self.page(share_projects(access=self.access), add_shares)


class ShareEditApi(ProjectApi):
    @endpoint("share_edit", Operation.SHARE_EDIT, ShareOutput, request=ShareEditInput)
    def patch(self, request: Request, slug: str) -> Response:
        """Change the weight, the quotas or the priority ceiling of a project. For operators only.

        The next scheduling cycle follows it: a project beyond its new quota gives machines up. An edit that changes
        nothing records nothing.
        """
        project = share_project_get(access=self.access, slug=slug)
        changes = {field: self.body[field] for field in SHARE_FIELDS if field in self.body}
        project = project_share_edit(
            project=project, changes=changes, reason=self.body["reason"], author=self.access.author
        )
        (share,) = project_shares([project])
        return Response(ShareOutput(share).data)
