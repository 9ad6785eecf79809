"""People, projects and tokens in the admin site. Token secrets are never shown.

Users are never deleted, because events name them: clearing `Active` closes an account. Invariant: only superusers
grant permissions, edit other accounts or add people to projects they do not own.
"""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from seamlessflow.control_plane.accounts.admin.access import access_of_staff, may_edit
from seamlessflow.control_plane.accounts.models import Membership, MembershipRole, Project, Token, User
from seamlessflow.control_plane.accounts.services.members import closing_check, members_edit, owner_give
from seamlessflow.control_plane.accounts.services.people import token_revocation_check, token_revoke
from seamlessflow.control_plane.accounts.services.records import (
    account_record,
    password_recorded,
    project_record,
)
from seamlessflow.control_plane.accounts.services.shares import SHARE_FIELDS, share_record
from seamlessflow.control_plane.common.admin.pages import KeptAdmin, ReadOnlyAdmin, author_of
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
        """This is also checked before a password is set: a user who sets another's password can sign in as them."""
        is_other = obj is not None and obj.pk != request.user.pk
        return super().has_change_permission(request, obj) and (not is_other or _is_superuser(request))

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Leave the event once permissions are saved as well."""
        super().save_related(request, form, formsets, change)
        if "is_active" in form.changed_data and change and not form.instance.is_active:
            closing_check(form.instance)
        before, after = _edited(form)
        kind = "account.edited" if change else "account.created"
        if after:
            account_record(
                user=form.instance, kind=kind, author=author_of(request), before=before, after=after
            )

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        with password_recorded(unquote(id), author=author_of(request)):
            response: HttpResponse = super().user_change_password(request, id, form_url)
        return response


def _edited(form: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the row's fields that the form changes, before and after, as JSON and without passwords."""
    stored = {field.name for field in form.instance._meta.get_fields()} - {"password"}
    edited = [field for field in form.changed_data if field in stored]
    before = {field: _plain(form.initial.get(field)) for field in edited}
    return before, {field: _plain(form.cleaned_data[field]) for field in edited}


def _plain(value: Any) -> Any:
    if isinstance(value, list | QuerySet):
        return sorted(map(str, value))
    return value if isinstance(value, bool | int | float | None) else str(value)


def _is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


class MembershipForm(forms.ModelForm):  # type: ignore[type-arg]
    def clean_user(self) -> User:
        """Refuse to make one person's membership another's: that would be a removal without its consequences."""
        user: User = self.cleaned_data["user"]
        if not self.instance._state.adding and "user" in self.changed_data:
            raise forms.ValidationError("Remove this member and add the other.")
        return user


class MembershipInline(admin.TabularInline):  # type: ignore[type-arg]
    model = Membership
    form = MembershipForm
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
    list_display = ["slug", "name", "weight", "machine_quota", "priority_ceiling", "created_at"]
    search_fields = ["slug", "name"]
    inlines = [MembershipInline]

    def get_readonly_fields(self, request: HttpRequest, obj: Project | None = None) -> tuple[str, ...]:
        """What a project takes from the others is for superusers to decide, not for its owners."""
        fixed = tuple(super().get_readonly_fields(request, obj))
        return fixed if _is_superuser(request) else (*fixed, *SHARE_FIELDS)

    def save_model(self, request: HttpRequest, obj: Project, form: Any, change: bool) -> None:
        """Leave an event, for an edit of the share the same as over REST."""
        super().save_model(request, obj, form, change)
        before, after = _edited(form)
        share = {field: after.pop(field) for field in SHARE_FIELDS if change and field in after}
        author = author_of(request)
        if share:
            former = {field: before.pop(field) for field in share}
            share_record(project=obj, before=former, after=share, reason="admin site", author=author)
        if after:
            kind = "project.edited" if change else "project.created"
            project_record(project=obj, kind=kind, author=author, before=before, after=after)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Change members as REST does."""
        formset.save(commit=False)  # this only sorts the rows, for Django's own log
        members_edit(
            project=form.instance,
            added=_roles(formset.new_objects),
            changed=_roles(membership for membership, _ in formset.changed_objects),
            removed=[membership.user.username for membership in formset.deleted_objects],
            author=author_of(request),
        )

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """A user who creates a project and names no owner is its owner."""
        super().save_related(request, form, formsets, change)
        if not change and isinstance(request.user, User):
            owner_give(project=form.instance, user=request.user, author=author_of(request))


def _roles(memberships: Iterable[Membership]) -> dict[str, MembershipRole]:
    return {one.user.username: MembershipRole(one.role) for one in memberships}


@admin.register(Token)
class TokenAdmin(ReadOnlyAdmin):
    list_display = ["name", "kind", "project", "user", "machine", "created_at", "last_used_at", "revoked_at"]
    list_filter = ["kind", "project"]
    list_select_related = ["project", "user", "machine"]
    ordering = ["-created_at"]
    search_fields = ["name", "user__username", "machine__name"]
    search_help_text = "The token's, user's or machine's name, or letters of it."
    exclude = ["digest"]
    actions = ["revoke"]

    @admin.action(description="Revoke: refuse all requests with these tokens from now on")
    def revoke(self, request: HttpRequest, tokens: QuerySet[Token]) -> None:
        access = access_of_staff(request)
        for token in tokens:
            try:
                token_revocation_check(access=access, token=token)
            except ApplicationError as error:
                self.message_user(request, f"{token}: {error.detail}", level="warning")
            else:
                token_revoke(token=token, author=author_of(request))
