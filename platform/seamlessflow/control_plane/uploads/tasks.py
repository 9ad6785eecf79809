"""Periodic work on uploads."""

from celery import shared_task
from django.conf import settings

from seamlessflow.control_plane.uploads.services.incoming import leftovers_remove


@shared_task(name="seamlessflow.incoming_clear")
def incoming_clear(**unknown: object) -> None:
    """Remove unfinished uploads of killed processes. Keywords of newer senders are ignored."""
    leftovers_remove(settings.INCOMING_DIR)
