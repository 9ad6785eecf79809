"""Periodic work on accounts."""

from celery import shared_task

from seamlessflow.control_plane.accounts.services.sign_in_attempts import attempts_forget


@shared_task(name="seamlessflow.sign_in_attempts_forget")
def sign_in_attempts_forget(**unknown: object) -> None:
    """Delete expired counters. Keywords of newer senders are ignored."""
    attempts_forget()
