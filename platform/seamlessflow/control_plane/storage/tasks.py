"""Periodic work on the storage. Keywords of newer senders are ignored."""

from celery import shared_task

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.storage.services import retention as services


@shared_task(name="seamlessflow.retention_apply")
def retention_apply(**unknown: object) -> None:
    services.retention_apply(now=database_now())


@shared_task(name="seamlessflow.removals_run")
def removals_run(**unknown: object) -> None:
    services.removals_run(now=database_now())
