"""What staff may do in the admin site: limited by the table of operations and Django's permissions.

Takes a request and an action's rows; returns the rows the caller may change and warns about the others.
Invariant: the admin site allows no user what REST refuses them.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from uuid import UUID

from django.contrib.admin import ModelAdmin
from django.db.models import Model
from django.http import HttpRequest

from seamlessflow.control_plane.accounts.models import User
from seamlessflow.control_plane.accounts.selectors.access import Access, access_of
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.core.access.operations import Operation

Row = TypeVar("Row", bound=Model)


def access_of_staff(request: HttpRequest) -> Access:
    """Return the caller's rights: superusers own every project; other staff have the roles of their memberships."""
    assert isinstance(request.user, User)
    return access_of(user=request.user, token=None)


def may_edit(request: HttpRequest, operation: Operation, project_id: UUID | None) -> bool:
    """Whether the caller may edit the row. Without a project, it belongs to the installation, which operators edit."""
    access = access_of_staff(request)
    return access.is_operator if project_id is None else access.may(operation, project_id)


def rows_allowed(
    page: "ModelAdmin[Any]",
    request: HttpRequest,
    rows: Iterable[Row],
    operation: Operation,
    *,
    project_of: Callable[[Row], UUID],
    author_of: Callable[[Row], UUID | None] = lambda row: None,
) -> list[Row]:
    """Return the rows on which the caller may perform the operation."""
    access = access_of_staff(request)
    allowed = []
    for row in rows:
        try:
            access.check(operation, project_of(row), author_id=author_of(row))
        except ApplicationError as error:
            page.message_user(request, f"{row}: {error.detail}", level="warning")
        else:
            allowed.append(row)
    return allowed
