"""Uploads in the admin site."""

from django.contrib import admin

from seamlessflow.control_plane.common.admin.pages import ReadOnlyAdmin
from seamlessflow.control_plane.uploads.models import Artifact


@admin.register(Artifact)
class ArtifactAdmin(ReadOnlyAdmin):
    list_display = ["name", "project", "num_bytes", "is_archive", "created_by", "created_at"]
    list_select_related = ["project", "created_by"]
