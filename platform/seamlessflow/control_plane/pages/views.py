"""Server-rendered pages. Each embeds the snapshot that the socket would send first, so it shows all without scripts'
help from REST; the script then keeps it live.
"""

import json
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from seamlessflow.control_plane.accounts.models import User
from seamlessflow.control_plane.accounts.selectors import Access, access_of
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.selectors import job_get_visible
from seamlessflow.control_plane.live.frames import MACHINES_TOPIC, job_topic, jobs_topic
from seamlessflow.control_plane.live.rows import Row
from seamlessflow.control_plane.live.selectors import job_snapshot, jobs_snapshot, machines_snapshot
from seamlessflow.control_plane.pages.trees import tree_of
from seamlessflow.control_plane.trajectories.selectors import (
    group_get_visible,
    group_session_list,
    session_get_visible,
    session_nodes,
)
from seamlessflow.core.types.ids import IdKind, show_id

MAX_DRAWN_TOKENS = 4000  # a longer session shows bars, not a box for each token


@require_safe
def sign_in_help(request: HttpRequest) -> HttpResponse:
    """Tells a visitor how to sign in; there is no password form besides the admin's."""
    return render(request, "pages/sign_in_help.html")


@require_safe
@login_required(login_url="/signin")
def job_list(request: HttpRequest) -> HttpResponse:
    topics: dict[str, Row] = {
        jobs_topic(project_id): jobs_snapshot(project_id) for project_id in sorted(_access(request).readable)
    }
    # Machines, though not shown, are heard from always: their silence means that this page is behind.
    context = {"page": "jobs", "state": {"subscribe": ["jobs", "machines"], "topics": topics}}
    return render(request, "pages/job_list.html", context | {"origin": request.build_absolute_uri("/")[:-1]})


@require_safe
@login_required(login_url="/signin")
def job_detail(request: HttpRequest, job_id: UUID) -> HttpResponse:
    job = _job(request, job_id)
    shown = show_id(IdKind.JOB, job.id)
    topics = {job_topic(job.id): job_snapshot(job.id), MACHINES_TOPIC: machines_snapshot()}
    context = {
        "page": "job",
        "job": job,
        "shown_id": shown,
        "state": {"subscribe": [f"job:{shown}", "machines"], "topics": topics},
        "may_write": job.project_id in _access(request).writable,
    }
    return render(request, "pages/job_detail.html", context)


@require_safe
@login_required(login_url="/signin")
def machine_list(request: HttpRequest) -> HttpResponse:
    state = {"subscribe": ["machines"], "topics": {MACHINES_TOPIC: machines_snapshot()}}
    return render(request, "pages/machine_list.html", {"page": "machines", "state": state})


@require_safe
@login_required(login_url="/signin")
def group_detail(request: HttpRequest, group_id: UUID) -> HttpResponse:
    try:
        group = group_get_visible(access=_access(request), group_id=group_id)
    except ApplicationError as error:
        raise Http404(error.detail) from error
    context = {
        "page": "group",
        "group": group,
        "shown_id": show_id(IdKind.GROUP, group.id),
        "shown_job_id": show_id(IdKind.JOB, group.job_id),
        "task": json.dumps(group.task, ensure_ascii=False, indent=2),
        "sessions": [
            (show_id(IdKind.SESSION, row.id), row, _last_line(row.reason))
            for row in group_session_list(group=group)
        ],
    }
    return render(request, "pages/group_detail.html", context)


@require_safe
@login_required(login_url="/signin")
def session_detail(request: HttpRequest, session_id: UUID) -> HttpResponse:
    try:
        session = session_get_visible(access=_access(request), session_id=session_id)
    except ApplicationError as error:
        raise Http404(error.detail) from error
    with_tokens = session.num_sampled_tokens <= MAX_DRAWN_TOKENS
    tree = tree_of(session_nodes(session=session, with_tokens=with_tokens))
    context = {
        "page": "session",
        "session": session,
        "shown_id": show_id(IdKind.SESSION, session.id),
        "shown_job_id": show_id(IdKind.JOB, session.job_id),
        "shown_group_id": show_id(IdKind.GROUP, session.group_id),
        "num_versions": len({span.version for node in tree for span in node.spans}),
        "tree": tree,
    }
    return render(request, "pages/session_detail.html", context)


def _last_line(reason: str) -> str:
    """Of a trace the line that says what it was."""
    return reason.strip().rpartition("\n")[2]


def _access(request: HttpRequest) -> Access:
    assert isinstance(request.user, User)
    return access_of(user=request.user, token=None)


def _job(request: HttpRequest, job_id: UUID) -> Job:
    try:
        return job_get_visible(access=_access(request), job_id=job_id)
    except ApplicationError as error:
        raise Http404(error.detail) from error
