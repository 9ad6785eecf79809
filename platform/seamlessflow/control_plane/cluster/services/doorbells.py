"""Sends a machine's doorbell: a Celery message that only makes the supervisor send its heartbeat at once.

Invariant: a lost doorbell costs latency, never work. So a broker that is down neither blocks nor raises here.

Phases are not Celery tasks: a phase lasts for hours and owns a machine, so a message that is redelivered, lost or
forged must not affect it. The desired state is in PostgreSQL, and the reply to every heartbeat repeats it.
"""

import logging
import time
from uuid import UUID

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from seamlessflow.control_plane.celery import doorbells

TASK_NAME = "seamlessflow.doorbell"
# A supervisor that was away reads the newest state anyway, so old doorbells would only pile up.
EXPIRES_S = 30.0
# How long to wait after a failure before the next attempt: each attempt at a hanging broker costs its time-out.
OUTAGE_PAUSE_S = 2.0
_log = logging.getLogger(__name__)


class _Outage:
    """Remembers whether the broker failed the last time, so that each outage is logged once."""

    def __init__(self) -> None:
        self.is_on = False
        self.retry_at_s = 0.0

    def begin(self, error: Exception) -> None:
        if not self.is_on:
            _log.warning("the doorbell broker is down; supervisors learn of orders by heartbeat: %s", error)
        self.is_on = True
        self.retry_at_s = time.monotonic() + OUTAGE_PAUSE_S

    def end(self) -> None:
        if self.is_on:
            _log.info("the doorbell broker is back")
        self.is_on = False


_outage = _Outage()


def doorbell_send(*, machine_name: str, phase_id: UUID, fence: int) -> None:
    """Send the doorbell, if the broker takes it at once."""
    if _outage.is_on and time.monotonic() < _outage.retry_at_s:
        return
    try:
        doorbells.send_task(
            TASK_NAME,
            kwargs={"phase_id": str(phase_id), "fence": fence},
            queue=f"machine.{machine_name}",
            expires=EXPIRES_S,
            retry=False,
            ignore_result=True,
        )
    except (OperationalError, RedisError, OSError) as error:
        _outage.begin(error)
    else:
        _outage.end()
