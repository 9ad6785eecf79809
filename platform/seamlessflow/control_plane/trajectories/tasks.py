"""Periodic work on the token tables."""

from celery import shared_task
from django.utils import timezone

from seamlessflow.control_plane.trajectories.services import partitions


@shared_task(name="seamlessflow.node_partitions_ensure")
def node_partitions_ensure(**unknown: object) -> None:
    """Make the partitions of this month and the next. Ignores keywords of newer senders."""
    partitions.node_partitions_ensure(today=timezone.now().date())
