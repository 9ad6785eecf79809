"""Every route of the web process, one include per audience."""

from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView

from seamlessflow.control_plane.accounts.views import (
    password_change,
    sign_in,
    sign_in_by_password,
    sign_in_help,
)
from seamlessflow.control_plane.common.http.health import healthz
from seamlessflow.control_plane.common.http.problems import bad_request, page_not_found, server_error
from seamlessflow.control_plane.telemetry.views import metrics

urlpatterns = [
    path("api/v1/", include("seamlessflow.control_plane.api_urls")),
    path("api/worker/v1/", include("seamlessflow.control_plane.worker_protocol.urls")),
    path("favicon.ico", RedirectView.as_view(url=static("accounts/icon.svg"), permanent=False)),
    path("signin", sign_in_help),
    path("signin/<str:secret>", sign_in),
    path("healthz", healthz),
    path("metrics", metrics),
    path("admin/login/", sign_in_by_password),
    path("admin/password_change/", admin.site.admin_view(password_change, cacheable=True)),
    path("admin/", admin.site.urls),
    path("", include("seamlessflow.control_plane.dashboard.urls")),
]
handler400 = bad_request
handler404 = page_not_found
handler500 = server_error
