"""Django's entry for this app; the label is the folder's name."""

from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    name = "seamlessflow.control_plane.telemetry"
    label = "telemetry"
