"""Django's entry for this app; the label is the folder's name."""

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    name = "seamlessflow.control_plane.dashboard"
    label = "dashboard"
