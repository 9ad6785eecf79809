"""REST API of a group's forest: an overview of its nodes, their tokens, and the text of tokens. Read-only.

Nodes and tokens are sent as bytes (`binary.py`), because a forest may have tens of thousands of nodes and a branch
100,000 tokens.
"""

from http import HTTPStatus
from uuid import UUID

import numpy as np
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.control_plane.common.errors import ApplicationError, field_error
from seamlessflow.control_plane.common.files.artifacts import recorded_pin
from seamlessflow.control_plane.common.http.query import IntegerParameter, Query, TextParameter
from seamlessflow.control_plane.jobs.selectors.jobs import job_get_visible
from seamlessflow.control_plane.trajectories.apis.binary import binary_encode, binary_response
from seamlessflow.control_plane.trajectories.apis.serializers import NodeOutput
from seamlessflow.control_plane.trajectories.selectors.forests import (
    COLUMNS,
    FINISH_REASONS,
    MAX_PAGE_NODES,
    ForestSession,
    forest_page,
    forest_sessions,
    session_tokens,
)
from seamlessflow.control_plane.trajectories.selectors.sessions import (
    group_get_visible,
    nodes_check,
    session_get_visible,
    session_node,
)
from seamlessflow.control_plane.trajectories.selectors.vocabulary import VocabularyUnreadable, vocabulary_read
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.runtime.artifacts.store import ArtifactMissing

MAX_INT4 = 2**31 - 1
_ARRAYS = OpenApiResponse(OpenApiTypes.BINARY, description="JSON header and packed little-endian arrays.")
_BYTES = {(HTTPStatus.OK, "application/octet-stream"): _ARRAYS}


class ForestQuery(Query):
    session = TextParameter("The session of the group to begin with.")
    node = IntegerParameter("The node of this session to begin with.", most=MAX_INT4, default=0)
    limit = IntegerParameter(
        f"Number of nodes to return, at most {MAX_PAGE_NODES}.",
        least=1,
        most=MAX_PAGE_NODES,
        default=MAX_PAGE_NODES,
    )


class GroupForestApi(ProjectApi):
    @endpoint(
        "group_forest",
        Operation.PROJECT_READ,
        _BYTES,
        query=ForestQuery,
    )
    def get(self, request: Request, group_id: UUID) -> HttpResponse:
        """Read the trees of a rollout group as binary columns.

        The body is a JSON header followed by one little-endian array for each of its `columns`. A
        group with more nodes than `limit` is read page by page: `next` in the header names the
        session and the node with which the next page begins. Deleted trajectories are answered
        with 410.
        """
        group = group_get_visible(access=self.access, group_id=group_id)
        nodes_check(group.job)
        sessions = forest_sessions([group])[group.id]
        first = _first_session(sessions, self.query["session"])
        page = forest_page(sessions, start=(first, self.query["node"]), limit=self.query["limit"])
        following = page.next and {"session": sessions[page.next[0]].row["id"], "node": page.next[1]}
        header = {
            "group": show_id(IdKind.GROUP, group.id),
            "job": show_id(IdKind.JOB, group.job_id),
            "sessions": [session.row for session in sessions],
            "num_nodes": len(page.columns["index"]),
            "columns": COLUMNS,
            "finish_reasons": FINISH_REASONS,
            "details": page.details,
            "next": following,
        }
        body = binary_encode(header, (page.columns[name].tobytes() for name in COLUMNS))
        return binary_response(request, body, is_immutable=False)


class SessionNodeApi(ProjectApi):
    @endpoint("session_node", Operation.PROJECT_READ, NodeOutput)
    def get(self, request: Request, session_id: UUID, index: int) -> Response:
        """Show one node of a session: its messages, its policy versions and how it was sampled."""
        session = session_get_visible(access=self.access, session_id=session_id)
        return Response(NodeOutput(session_node(session=session, index=min(index, MAX_INT4))).data)


class TokensQuery(Query):
    node = IntegerParameter("The node to begin with.", most=MAX_INT4, default=0)
    start = IntegerParameter("The token of this node to begin with.", most=MAX_INT4, default=0)


class SessionTokensApi(ProjectApi):
    @endpoint(
        "session_tokens",
        Operation.PROJECT_READ,
        _BYTES,
        query=TokensQuery,
    )
    def get(self, request: Request, session_id: UUID) -> HttpResponse:
        """Read the tokens and logprobs of consecutive nodes of a session as binary arrays.

        The body is a JSON header followed by little-endian arrays. `next` in the header names the
        node and the token with which the next page begins. Deleted trajectories are answered with
        410.
        """
        session = session_get_visible(access=self.access, session_id=session_id)
        nodes_check(session.job)
        page = session_tokens(session=session, **self.query)
        header = {"parts": page.parts, "next": page.next, "arrays": ["token_ids:int32", "logprobs:float32"]}
        body = binary_encode(header, [page.token_ids, page.logprobs])
        # An open session may get further nodes, so only a page with a successor never changes.
        return binary_response(request, body, is_immutable=page.next is not None)


class JobVocabularyApi(ProjectApi):
    @endpoint("job_vocabulary", Operation.PROJECT_READ, _BYTES)
    def get(self, request: Request, job_id: UUID) -> HttpResponse:
        """Read the bytes of every token of a job's tokenizer.

        The body is a JSON header, then the end of each token as uint32, then the bytes of all
        tokens in order of their ids. If the tokenizer cannot be read, the answer is 404.
        """
        job = job_get_visible(access=self.access, job_id=job_id)
        try:
            with recorded_pin(job.model_path, text_only=True) as pinned:
                tokens = vocabulary_read(str(pinned.path))
        except (VocabularyUnreadable, ArtifactMissing) as error:
            raise ApplicationError(str(error), status=HTTPStatus.NOT_FOUND) from error
        body = binary_encode({"num_tokens": len(tokens)}, [_ends(tokens), b"".join(tokens)])
        return binary_response(request, body, is_immutable=True)


def _ends(tokens: tuple[bytes, ...]) -> bytes:
    lengths = np.fromiter((len(token) for token in tokens), dtype="<u4", count=len(tokens))
    return np.cumsum(lengths, dtype="<u4").tobytes()


def _first_session(sessions: list[ForestSession], shown: str | None) -> int:
    if shown is None:
        return 0
    for index, session in enumerate(sessions):
        if session.row["id"] == shown:
            return index
    raise field_error("session", f"{shown!r} is not a session of this group")
