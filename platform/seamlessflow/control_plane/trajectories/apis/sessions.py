"""REST API of rollout groups, sessions with their trees, evaluations, and the audit of a job. Read-only."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.http.pages import (
    PAGE_PARAMETERS,
    page_response,
    page_serializer,
    query_integer,
)
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.selectors.jobs import job_get_visible
from seamlessflow.control_plane.trajectories.apis.serializers import (
    AuditOutput,
    EvaluationOutput,
    GroupDetailOutput,
    GroupOutput,
    NodeOutput,
    SessionDetailOutput,
    SessionOutput,
)
from seamlessflow.control_plane.trajectories.models import Session
from seamlessflow.control_plane.trajectories.selectors.audit import job_audit
from seamlessflow.control_plane.trajectories.selectors.evaluations import evaluation_list
from seamlessflow.control_plane.trajectories.selectors.joins import session_joins_get
from seamlessflow.control_plane.trajectories.selectors.last_lines import last_lines_get
from seamlessflow.control_plane.trajectories.selectors.sessions import (
    MAX_NODES,
    group_get_visible,
    group_list,
    group_session_list,
    session_get_visible,
    session_nodes,
)
from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.core.types.ids import IdKind, show_id

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


class JobGroupListApi(ProjectApi):
    @extend_schema(
        operation_id="job_group_list",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("state", enum=list(GroupState), description="Only groups in this state."),
            OpenApiParameter(
                "evaluation",
                OpenApiTypes.INT,
                description="Only the groups that evaluate this version. Without it: the groups that train.",
            ),
        ],
        responses=page_serializer(GroupOutput),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the rollout groups of a job, newest first.

        Groups that train are listed by default; `evaluation` selects the groups that measured one
        version.
        """
        job = job_get_visible(access=self.access, job_id=job_id)
        state = request.query_params.get("state")
        if state is not None and state not in set(map(str, GroupState)):
            raise field_error("state", f"{state!r} is not a state; accepted: {', '.join(GroupState)}")
        evaluation = (
            query_integer(request, "evaluation", default=0) if "evaluation" in request.query_params else None
        )
        return page_response(request, group_list(job=job, state=state, evaluation=evaluation), GroupOutput)


class JobEvaluationListApi(ProjectApi):
    @extend_schema(
        operation_id="job_evaluation_list",
        parameters=PAGE_PARAMETERS,
        responses=page_serializer(EvaluationOutput),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the evaluations of a job on its held-out tasks, one for each version measured."""
        job = job_get_visible(access=self.access, job_id=job_id)
        return page_response(request, evaluation_list(job=job), EvaluationOutput)


class GroupDetailApi(ProjectApi):
    @extend_schema(operation_id="group_get", responses=GroupDetailOutput)
    def get(self, request: Request, group_id: UUID) -> Response:
        """Show a rollout group: its task and its sessions with their rewards."""
        group = group_get_visible(access=self.access, group_id=group_id)
        sessions = list(group_session_list(group=group))
        context = _context(sessions, group.job)
        detail = {
            "job_id": show_id(IdKind.JOB, group.job_id),
            "job_name": group.job.name,
            "task": group.task,
            "sessions": SessionOutput(sessions, many=True, context=context).data,
        }
        return Response(dict(GroupOutput(group).data) | detail)


class SessionDetailApi(ProjectApi):
    @extend_schema(
        operation_id="session_get",
        parameters=[
            OpenApiParameter("tokens", OpenApiTypes.BOOL, description="Add token ids and logprobs."),
            OpenApiParameter(
                "from_node", OpenApiTypes.INT, description="Index of the first node to return; by default 0."
            ),
        ],
        responses=SessionDetailOutput,
    )
    def get(self, request: Request, session_id: UUID) -> Response:
        """Show a session with its turns as nodes of a tree.

        Long sessions are truncated: `next_node` is the `from_node` of the next page.
        """
        session = session_get_visible(access=self.access, session_id=session_id)
        first = query_integer(request, "from_node", default=0, maximum=2**31 - 1)
        nodes = session_nodes(
            session=session, with_tokens=_flag(request, "tokens"), first=first, limit=MAX_NODES + 1
        )
        page = nodes[:MAX_NODES]
        detail = {
            "nodes": NodeOutput(page, many=True).data,
            "truncated": len(nodes) > len(page),
            "next_node": nodes[MAX_NODES]["node_index"] if len(nodes) > len(page) else None,
        }
        context = _context([session], session.job)
        return Response(dict(SessionOutput(session, context=context).data) | detail)


class JobAuditApi(ProjectApi):
    @extend_schema(operation_id="job_audit", responses=AuditOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Check whether a job's records are complete.

        Each check looks for something lost or stored twice: batches, versions, sessions, tokens,
        time. `ok` is true if all checks passed.
        """
        report = job_audit(job_get_visible(access=self.access, job_id=job_id))
        return Response(AuditOutput(report).data)


def _context(sessions: Sequence[Session], job: Job) -> dict[str, Any]:
    return {"joins": session_joins_get(sessions, job=job), "last_lines": last_lines_get(sessions)}


def _flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "false").lower()
    if value not in _TRUTH:
        raise field_error(name, f"{value!r} is not accepted; accepted: true, false")
    return _TRUTH[value]
