"""Django's entry for this app; the label is the folder's name."""

from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "seamlessflow.control_plane.jobs"
    label = "jobs"
    verbose_name = "Jobs"
