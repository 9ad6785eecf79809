"""What follows when groups are finalized: this process counts them and wakes the long polls that wait for them.

It takes the new states of a job's groups. Invariant: it is called only after their transaction is committed.
"""

from collections.abc import Collection
from uuid import UUID

from seamlessflow.core.lifecycle.groups import GroupState
from seamlessflow.data_plane import metrics
from seamlessflow.data_plane.notifier import JobNotifier

_COUNTERS = {
    GroupState.READY: metrics.GROUPS_READY,
    GroupState.DROPPED: metrics.GROUPS_DROPPED,
    GroupState.EVALUATED: metrics.GROUPS_EVALUATED,
}


class GroupNews:
    def __init__(self, *, room: JobNotifier, ready: JobNotifier) -> None:
        """`ready` announces that a group became ready, `room` that more groups may begin."""
        self._room = room
        self._ready = ready

    def tell(self, job_id: UUID, finalized: Collection[GroupState]) -> None:
        """Announce the new states of the job's groups, whose transaction is committed."""
        groups_count(finalized)
        if GroupState.READY in finalized:
            self._ready.notify(job_id)
        if set(finalized) - {GroupState.READY}:  # a ready group takes its room until it is trained
            self._room.notify(job_id)


def groups_count(finalized: Collection[GroupState]) -> None:
    """Count, in the metrics, groups that just came to these states."""
    for state in finalized:
        _COUNTERS[state].inc()
