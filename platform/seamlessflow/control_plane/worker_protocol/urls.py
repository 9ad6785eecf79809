"""Routes of `/api/worker/v1`."""

from django.urls import path

from seamlessflow.control_plane.worker_protocol import apis as worker_apis

urlpatterns = [
    path("join", worker_apis.join),
    path("heartbeat", worker_apis.heartbeat),
    path("publications", worker_apis.publications),
    path("metrics", worker_apis.metrics),
    path("sessions/logs", worker_apis.session_logs),
    path("phases/<uuid:phase_id>/logs", worker_apis.phase_logs),
]
