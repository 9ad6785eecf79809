"""Periodic work on what came in."""

from celery import shared_task
from django.conf import settings

from seamlessflow.control_plane.uploads.incoming import leftovers_remove


@shared_task(name="seamlessflow.incoming_clear")
def incoming_clear(**unknown: object) -> None:
    """Unfinished uploads of killed processes. Keywords of newer senders are ignored."""
    leftovers_remove(settings.INCOMING_DIR)
