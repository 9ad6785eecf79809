"""People, projects and tokens in the admin site. Secrets of tokens are nowhere to be shown."""

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.db.models import QuerySet
from django.http import HttpRequest

from seamlessflow.control_plane.accounts.models import Membership, Project, Token, User
from seamlessflow.control_plane.accounts.services import token_revoke
from seamlessflow.control_plane.common.admin import ReadOnlyAdmin, author_of

admin.site.site_header = admin.site.site_title = "SeamlessFlow"
admin.site.register(User, UserAdmin)


class MembershipInline(admin.TabularInline):  # type: ignore[type-arg]
    model = Membership
    extra = 0
    autocomplete_fields = ["user"]


@admin.register(Project)
class ProjectAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["slug", "name", "created_at"]
    search_fields = ["slug", "name"]
    inlines = [MembershipInline]


@admin.register(Token)
class TokenAdmin(ReadOnlyAdmin):
    list_display = ["name", "kind", "project", "user", "machine", "created_at", "last_used_at", "revoked_at"]
    list_filter = ["kind"]
    list_select_related = ["project", "user", "machine"]
    exclude = ["digest"]
    actions = ["revoke"]

    @admin.action(description="Revoke")
    def revoke(self, request: HttpRequest, tokens: QuerySet[Token]) -> None:
        for token in tokens:
            token_revoke(token=token, author=author_of(request))
