"""The application `storage`."""

from django.apps import AppConfig


class StorageConfig(AppConfig):
    name = "seamlessflow.control_plane.storage"
