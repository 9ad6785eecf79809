"""REST API of rollout groups, sessions with their trees, evaluations, and the audit of a job. Read-only."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.control_plane.common.http.pages import PageQuery
from seamlessflow.control_plane.common.http.query import FlagParameter, IntegerParameter, Query, WordParameter
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
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.core.types.ids import IdKind, show_id

MAX_INT4 = 2**31 - 1


class GroupsQuery(PageQuery):
    state = WordParameter("Only groups in this state.", words=GroupState)
    evaluation = IntegerParameter(
        "Only the groups that evaluate this version. Without it: the groups that train."
    )


class JobGroupListApi(ProjectApi):
    @endpoint("job_group_list", Operation.PROJECT_READ, page=GroupOutput, query=GroupsQuery)
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the rollout groups of a job, newest first.

        Groups that train are listed by default; `evaluation` selects the groups that measured one
        version.
        """
        job = job_get_visible(access=self.access, job_id=job_id)
        groups = group_list(job=job, state=self.query["state"], evaluation=self.query["evaluation"])
        return self.page(groups)


class JobEvaluationListApi(ProjectApi):
    @endpoint("job_evaluation_list", Operation.PROJECT_READ, page=EvaluationOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """List the evaluations of a job on its held-out tasks, one for each version measured."""
        job = job_get_visible(access=self.access, job_id=job_id)
        return self.page(evaluation_list(job=job))


class GroupDetailApi(ProjectApi):
    @endpoint("group_get", Operation.PROJECT_READ, GroupDetailOutput)
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


class SessionQuery(Query):
    tokens = FlagParameter("Add token ids and logprobs.", default=False)
    from_node = IntegerParameter("Index of the first node to return; by default 0.", most=MAX_INT4, default=0)


class SessionDetailApi(ProjectApi):
    @endpoint("session_get", Operation.PROJECT_READ, SessionDetailOutput, query=SessionQuery)
    def get(self, request: Request, session_id: UUID) -> Response:
        """Show a session with its turns as nodes of a tree.

        Long sessions are truncated: `next_node` is the `from_node` of the next page.
        """
        session = session_get_visible(access=self.access, session_id=session_id)
        nodes = session_nodes(
            session=session,
            with_tokens=self.query["tokens"],
            first=self.query["from_node"],
            limit=MAX_NODES + 1,
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
    @endpoint("job_audit", Operation.PROJECT_READ, AuditOutput)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Check whether a job's records are complete.

        Each check looks for something lost or stored twice: batches, versions, sessions, tokens,
        time. `ok` is true if all checks passed.
        """
        report = job_audit(job_get_visible(access=self.access, job_id=job_id))
        return Response(AuditOutput(report).data)


def _context(sessions: Sequence[Session], job: Job) -> dict[str, Any]:
    return {"joins": session_joins_get(sessions, job=job), "last_lines": last_lines_get(sessions)}
