"""Django's entry for this app; the label is the folder's name."""

from django.apps import AppConfig


class CommonConfig(AppConfig):
    name = "seamlessflow.control_plane.common"
    label = "common"
    verbose_name = "Record and files"
