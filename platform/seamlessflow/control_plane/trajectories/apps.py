"""Django's configuration of this app; it makes the partitions of the token table after each migration."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils import timezone

from seamlessflow.control_plane.trajectories.services.partitions import node_partitions_ensure


class TrajectoriesConfig(AppConfig):
    name = "seamlessflow.control_plane.trajectories"
    label = "trajectories"

    def ready(self) -> None:
        post_migrate.connect(_partitions_ensure, sender=self)


def _partitions_ensure(**signal: Any) -> None:
    node_partitions_ensure(today=timezone.now().date())
