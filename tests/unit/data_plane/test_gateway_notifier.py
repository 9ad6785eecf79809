"""Long polls wake when their job has changed, and only then."""

import asyncio
from uuid import UUID

from seamlessflow.data_plane.notifier import JobNotifier, changed

ONE, OTHER = UUID(int=1), UUID(int=2)


async def test_change_between_ticket_and_wait_is_not_lost() -> None:
    notifier = JobNotifier()
    ticket = notifier.ticket(ONE)
    notifier.notify(ONE)
    async with asyncio.timeout(1.0):
        await changed(ticket, timeout_s=60.0)
    assert not notifier.ticket(ONE).is_set()  # the next look waits for the next change


async def test_all_who_wait_for_a_job_wake_and_those_of_others_time_out() -> None:
    notifier = JobNotifier()
    tickets = [notifier.ticket(ONE), notifier.ticket(ONE), notifier.ticket(OTHER)]
    waiting = [asyncio.create_task(changed(ticket, timeout_s=0.05)) for ticket in tickets]
    notifier.notify(ONE)
    async with asyncio.timeout(1.0):
        await asyncio.gather(*waiting)
    assert [ticket.is_set() for ticket in tickets] == [True, True, False]
