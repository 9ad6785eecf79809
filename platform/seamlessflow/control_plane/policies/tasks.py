"""Periodic work on policy versions."""

from celery import shared_task

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.files.removals import deletions_allowed
from seamlessflow.control_plane.policies.services import versions as services


@shared_task(name="seamlessflow.versions_prune")
def versions_prune(**unknown: object) -> None:
    """Delete the weights that retention does not keep. Keywords of newer senders are ignored."""
    with deletions_allowed() as is_allowed:
        if is_allowed:
            services.versions_prune()
            services.leftovers_clear(now=database_now())
