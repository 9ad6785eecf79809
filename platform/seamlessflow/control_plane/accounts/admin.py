"""People, projects and tokens in the admin site. Secrets of tokens are nowhere to be shown.

Nobody is deleted, because events name them: an account is closed by taking `Active` away.
"""

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.db.models import QuerySet
from django.http import HttpRequest

from seamlessflow.control_plane.accounts.models import Membership, Project, Token, User
from seamlessflow.control_plane.accounts.services import token_revoke
from seamlessflow.control_plane.common.admin import KeptAdmin, ReadOnlyAdmin, author_of


@admin.register(User)
class PersonAdmin(KeptAdmin, UserAdmin):  # type: ignore[type-arg]
    list_display = ["username", "email", "is_active", "is_staff", "is_superuser", "last_login"]


class MembershipInline(admin.TabularInline):  # type: ignore[type-arg]
    model = Membership
    extra = 0
    autocomplete_fields = ["user"]


@admin.register(Project)
class ProjectAdmin(KeptAdmin):
    list_display = ["slug", "name", "created_at"]
    search_fields = ["slug", "name"]
    inlines = [MembershipInline]


@admin.register(Token)
class TokenAdmin(ReadOnlyAdmin):
    list_display = ["name", "kind", "project", "user", "machine", "created_at", "last_used_at", "revoked_at"]
    list_filter = ["kind", "project"]
    list_select_related = ["project", "user", "machine"]
    ordering = ["-created_at"]
    search_fields = ["name", "user__username", "machine__name"]
    search_help_text = "A part of the token's, the person's or the machine's name."
    exclude = ["digest"]
    actions = ["revoke"]

    @admin.action(description="Revoke: what uses it is refused from now on")
    def revoke(self, request: HttpRequest, tokens: QuerySet[Token]) -> None:
        for token in tokens:
            token_revoke(token=token, author=author_of(request))
