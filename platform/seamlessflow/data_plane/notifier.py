"""Wakes this process's long polls when something about their job has changed.

The notifier only saves time: polling also finds changes made by other gateways. Callers take a ticket, look, and then
wait, so a change between looking and waiting is not lost.
"""

import asyncio
import contextlib
from uuid import UUID

MAX_WAIT_S = 60.0  # limit on the wait of a long poll, whatever the caller asks for
Ticket = asyncio.Event


class JobNotifier:
    """Has one event for each job that a task waits for; `notify` uses it up."""

    def __init__(self) -> None:
        self._tickets: dict[UUID, Ticket] = {}

    def ticket(self, job_id: UUID) -> Ticket:
        return self._tickets.setdefault(job_id, Ticket())

    def notify(self, job_id: UUID) -> None:
        if ticket := self._tickets.pop(job_id, None):
            ticket.set()


async def changed(ticket: Ticket, *, timeout_s: float) -> None:
    """Return once the ticket's job has changed, or after `timeout_s`."""
    with contextlib.suppress(TimeoutError):  # the poll then looks on its own
        async with asyncio.timeout(timeout_s):
            await ticket.wait()
