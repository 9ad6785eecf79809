"""Django's entry for this app; the label is the folder's name."""

from django.apps import AppConfig


class SchedulingConfig(AppConfig):
    name = "seamlessflow.control_plane.scheduling"
    label = "scheduling"
    verbose_name = "Phases"
