"""Pools over REST: list them, grant one to a project, revoke a grant."""

from http import HTTPStatus

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.control_plane.accounts.services.shares import share_project_get
from seamlessflow.control_plane.cluster.services.pools import pool_grant, pool_list, pool_revoke
from seamlessflow.control_plane.common.http.fields import ReasonField
from seamlessflow.control_plane.common.http.query import Query, TextParameter
from seamlessflow.core.access.operations import Operation


class PoolOutput(serializers.Serializer):
    name = serializers.CharField()
    num_machines = serializers.IntegerField()
    is_open = serializers.BooleanField(
        help_text="Whether all projects may use it: the pool `default` is open until it is granted to a project."
    )
    projects = serializers.ListField(
        child=serializers.CharField(),
        help_text="Slugs of the projects that it is granted to, as far as you may read them.",
    )


class PoolReasonInput(serializers.Serializer):
    reason = ReasonField(is_required=False)


class RevokeQuery(Query):
    reason = TextParameter("Reason, kept in the audit trail.", default="")


class PoolListApi(ProjectApi):
    @endpoint("pool_list", Operation.MACHINE_READ, page=PoolOutput)
    def get(self, request: Request) -> Response:
        """List the pools of machines that your projects may use; operators see all."""
        return self.page(pool_list(access=self.access))


class PoolGrantApi(ProjectApi):
    @endpoint("pool_grant", Operation.SHARE_EDIT, {204: None}, request=PoolReasonInput)
    def put(self, request: Request, pool: str, slug: str) -> Response:
        """Grant a pool to a project. For operators only.

        The jobs of the project may then use the pool's machines. The pool `default` is open to all until it is
        granted to a project; from then on only the projects that it is granted to may use it. Repeating the request
        changes nothing. A pool without machines is refused (404).
        """
        project = share_project_get(access=self.access, slug=slug)
        pool_grant(pool=pool, project=project, reason=self.body["reason"], author=self.access.author)
        return Response(status=HTTPStatus.NO_CONTENT)

    @endpoint("pool_revoke", Operation.SHARE_EDIT, {204: None}, query=RevokeQuery)
    def delete(self, request: Request, pool: str, slug: str) -> Response:
        """End the grant of a pool to a project. For operators only.

        The project's phases on the pool's machines are drained. Repeating the request changes nothing.
        """
        project = share_project_get(access=self.access, slug=slug)
        pool_revoke(pool=pool, project=project, reason=self.query["reason"], author=self.access.author)
        return Response(status=HTTPStatus.NO_CONTENT)
