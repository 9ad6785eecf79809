"""Base of every API class for people. `endpoint` declares a handler: its operation, query parameters, body and answer.

Enters: a request. Leaves: the caller's rights, the validated query and body. Invariant: a handler without a declaration
serves no request, and a token without the scope of the operation reaches no handler.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from seamlessflow.control_plane.accounts.models import Project, Token
from seamlessflow.control_plane.accounts.selectors.access import Access, access_of, project_for
from seamlessflow.control_plane.common.http.bodies import body_read
from seamlessflow.control_plane.common.http.pages import PageQuery, page_response, page_serializer
from seamlessflow.control_plane.common.http.query import Query, TextParameter, query_read
from seamlessflow.core.access.operations import RULES, Operation

Handler = TypeVar("Handler", bound=Callable[..., Any])


class ProjectQuery(Query):
    project = TextParameter("Slug of the project. May be left out if you are in one project only.")


class ProjectsQuery(PageQuery):
    project = TextParameter("Slug of a project. Default: all that you can read.")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The declaration of a handler. `item`: the kind of the rows, for a handler that answers with a page."""

    operation: Operation
    query: type[Query]
    body: Any
    item: Any


def endpoint(
    operation_id: str,
    operation: Operation,
    responses: Any = None,
    *,
    page: Any = None,
    query: type[Query] | None = None,
    request: Any = None,
    headers: Sequence[OpenApiParameter] = (),
) -> Callable[[Handler], Handler]:
    """Declare a handler, for its view and for OpenAPI. A handler with `page` answers with a page of such rows."""
    query = query or (PageQuery if page else Query)

    def declare(handler: Handler) -> Handler:
        handler.endpoint = Endpoint(operation, query, request, page)  # type: ignore[attr-defined]
        return extend_schema(
            operation_id=operation_id,
            parameters=headers if query is Query else [query, *headers],  # the library cannot list none
            request=request,
            responses=page_serializer(page) if page else responses,
        )(handler)

    return declare


class ProjectApi(APIView):
    """An address with one operation per method. `access` has the caller's rights, `query` the validated parameters."""

    endpoint: Endpoint
    query: dict[str, Any]

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        super().initial(request, *args, **kwargs)
        method = str(request.method).lower()
        handler = getattr(self, method, None) if method in self.http_method_names else None
        if handler is None or method == "options":
            return  # the base class answers
        self.endpoint = handler.endpoint
        self.query = query_read(request.query_params.dict(), self.endpoint.query)
        # If the address names an object, the view first checks that the caller may see it.
        if not (RULES[self.endpoint.operation].is_operators and kwargs):
            self.access.check(self.endpoint.operation)

    @cached_property
    def access(self) -> Access:
        token = self.request.auth if isinstance(self.request.auth, Token) else None
        return access_of(user=self.request.user, token=token)

    @cached_property
    def body(self) -> dict[str, Any]:
        """The validated body. Raises ApplicationError or ValidationError, each naming the field."""
        return body_read(self.request, self.endpoint.body)

    @cached_property
    def project(self) -> Project:
        """The project that the query names, or the caller's only one. Raises ApplicationError."""
        return project_for(access=self.access, slug=self.query["project"], operation=self.endpoint.operation)

    @property
    def project_ids(self) -> Collection[UUID]:
        """The project that the query names, or else all that the caller can read. Raises ApplicationError."""
        return self.access.readable if self.query["project"] is None else [self.project.id]

    def page(
        self, rows: QuerySet[Any] | Sequence[Any], prepare: Callable[[list[Any]], None] = lambda page: None
    ) -> Response:
        """Answer with a page. `prepare` may add to its rows what one more query reads for all of them, or replace
        them."""
        return page_response(self.query, rows, self.endpoint.item, prepare)
