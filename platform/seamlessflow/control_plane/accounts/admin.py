"""People, projects and tokens in the admin site. Token secrets are never shown.

Users are never deleted, because events name them: clearing `Active` closes an account. Invariant: only superusers
grant permissions, edit other accounts or add people to projects they do not own.
"""

from http import HTTPStatus
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import HttpRequest

from seamlessflow.control_plane.accounts.admin_access import access_of_staff, may_edit
from seamlessflow.control_plane.accounts.models import Membership, Project, Token, TokenKind, User
from seamlessflow.control_plane.accounts.selectors import Access
from seamlessflow.control_plane.accounts.services import token_revoke
from seamlessflow.control_plane.accounts.shares import SHARE_FIELDS, share_record
from seamlessflow.control_plane.common.admin import KeptAdmin, ReadOnlyAdmin, author_of
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.core.access.operations import Operation

POWERS = ("is_staff", "is_superuser", "groups", "user_permissions")

# Superusers give permissions to individual users; groups would be a second way.
admin.site.unregister(Group)


@admin.register(User)
class PersonAdmin(KeptAdmin, UserAdmin):  # type: ignore[type-arg]
    list_display = ["username", "email", "is_active", "is_staff", "is_superuser", "last_login"]

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        fixed = tuple(super().get_readonly_fields(request, obj))
        return fixed if _is_superuser(request) else (*fixed, *POWERS)

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """This is also checked before a password is set: whoever sets someone's password can sign in as them."""
        is_other = obj is not None and obj.pk != request.user.pk
        return super().has_change_permission(request, obj) and (not is_other or _is_superuser(request))


def _is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


class MembershipInline(admin.TabularInline):  # type: ignore[type-arg]
    model = Membership
    extra = 0
    autocomplete_fields = ["user"]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_add_permission(request, obj) and self._may_edit(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and self._may_edit(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and self._may_edit(request, obj)

    def _may_edit(self, request: HttpRequest, project: Any) -> bool:
        """Whether the caller may edit the project. A new one has no owner yet, so only superusers create projects."""
        if not isinstance(project, Project):
            return _is_superuser(request)
        return may_edit(request, Operation.MEMBER_EDIT, project.id)


@admin.register(Project)
class ProjectAdmin(KeptAdmin):
    list_display = ["slug", "name", "weight", "machine_quota", "created_at"]
    search_fields = ["slug", "name"]
    inlines = [MembershipInline]

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> tuple[str, ...]:
        """What a project takes from the others is for superusers to decide, not for its owners."""
        fixed = tuple(super().get_readonly_fields(request, obj))
        return fixed if _is_superuser(request) else (*fixed, *SHARE_FIELDS)

    def save_model(self, request: HttpRequest, obj: Project, form: Any, change: bool) -> None:
        """Leave the event that an edit of the share leaves over REST."""
        edited = [field for field in SHARE_FIELDS if change and field in form.changed_data]
        before = {field: form.initial.get(field) for field in edited}
        super().save_model(request, obj, form, change)
        if edited:
            after = {field: getattr(obj, field) for field in edited}
            share_record(
                project=obj, before=before, after=after, reason="admin site", author=author_of(request)
            )


@admin.register(Token)
class TokenAdmin(ReadOnlyAdmin):
    list_display = ["name", "kind", "project", "user", "machine", "created_at", "last_used_at", "revoked_at"]
    list_filter = ["kind", "project"]
    list_select_related = ["project", "user", "machine"]
    ordering = ["-created_at"]
    search_fields = ["name", "user__username", "machine__name"]
    search_help_text = "Part of the token's, user's or machine's name."
    exclude = ["digest"]
    actions = ["revoke"]

    @admin.action(description="Revoke: refuse all requests with these tokens from now on")
    def revoke(self, request: HttpRequest, tokens: QuerySet[Token]) -> None:
        access = access_of_staff(request)
        for token in tokens:
            try:
                _revocation_check(access, token)
            except ApplicationError as error:
                self.message_user(request, f"{token}: {error.detail}", level="warning")
            else:
                token_revoke(token=token, author=author_of(request))


def _revocation_check(access: Access, token: Token) -> None:
    """Raise ApplicationError unless the caller may revoke it: operators may revoke a machine's token; superusers and
    its user may revoke a token of the installation."""
    if token.kind == TokenKind.MACHINE:
        access.check(Operation.MACHINE_EDIT)
    elif token.project_id is not None:
        access.check(Operation.TOKEN_REVOKE, token.project_id, author_id=token.user_id)
    elif not access.user.is_superuser and token.user_id != access.user.id:
        raise ApplicationError("only its user and superusers may revoke it", status=HTTPStatus.FORBIDDEN)
