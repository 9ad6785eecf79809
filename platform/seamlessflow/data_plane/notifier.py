"""Wakes the long polls of this process when something of their job changed.

The notifier only saves time: polling finds the changes that another gateway made. Callers take a ticket, look, and
then wait, so a change between taking the ticket and waiting is not lost.
"""

import asyncio
import contextlib
from uuid import UUID

MAX_WAIT_S = 60.0  # the most that a long poll waits, whatever it asks for
Ticket = asyncio.Event


class JobNotifier:
    """One event per job that somebody waits for; a wake uses it up."""

    def __init__(self) -> None:
        self._tickets: dict[UUID, Ticket] = {}

    def ticket(self, job_id: UUID) -> Ticket:
        return self._tickets.setdefault(job_id, Ticket())

    def notify(self, job_id: UUID) -> None:
        if ticket := self._tickets.pop(job_id, None):
            ticket.set()


async def changed(ticket: Ticket, *, timeout_s: float) -> None:
    """Return once the ticket's job changed, or after `timeout_s`."""
    with contextlib.suppress(TimeoutError):  # then the poll looks by itself
        async with asyncio.timeout(timeout_s):
            await ticket.wait()
