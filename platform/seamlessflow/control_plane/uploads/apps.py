"""Django's entry for this app; the label is the folder's name."""

from django.apps import AppConfig


class UploadsConfig(AppConfig):
    name = "seamlessflow.control_plane.uploads"
    label = "uploads"
    verbose_name = "Uploads"
