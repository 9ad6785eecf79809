"""Django's entry for this app; after each migration the token table has its partitions."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class TrajectoriesConfig(AppConfig):
    name = "seamlessflow.control_plane.trajectories"
    label = "trajectories"

    def ready(self) -> None:
        post_migrate.connect(_partitions_ensure, sender=self)


def _partitions_ensure(**signal: Any) -> None:
    # Models and settings are complete only now.
    from seamlessflow.control_plane.trajectories.tasks import node_partitions_ensure

    node_partitions_ensure()
