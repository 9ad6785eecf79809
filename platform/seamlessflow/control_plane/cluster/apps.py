"""Django's entry for this app; the label is the folder's name."""

from django.apps import AppConfig


class ClusterConfig(AppConfig):
    name = "seamlessflow.control_plane.cluster"
    label = "cluster"
    verbose_name = "Machines"
