"""Every route of the web process, one include per audience."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("seamlessflow.control_plane.live.urls")),
]
