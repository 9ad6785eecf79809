"""States of a phase (a machine's lease to a job in one role) and the moves between them.

leased → starting → active → draining → ended, or failed from anywhere before the end. The supervisor
reports starting, active, ended and failed; the scheduler orders leased and draining.
"""

from enum import StrEnum

from seamlessflow.core.lifecycle.table import TransitionTable


class PhaseState(StrEnum):
    LEASED = "leased"
    STARTING = "starting"
    ACTIVE = "active"
    DRAINING = "draining"
    ENDED = "ended"
    FAILED = "failed"


class FailureCause(StrEnum):
    """Why a phase failed, as far as the platform knows. `WORK` is evidence about its job or its machine,
    `INPUT` only about its job, the others about neither."""

    WORK = "work"  # what ran failed, or did not start or end in time
    INPUT = "input"  # what the job names, such as its model, would fail in the same way on every machine
    SILENCE = "silence"  # its machine was lost or its supervisor was restarted
    GANG = "gang"  # another member of its gang failed first


_S = PhaseState
PHASE_MOVES = TransitionTable(
    "phase",
    {
        _S.LEASED: frozenset({_S.STARTING, _S.ACTIVE, _S.DRAINING, _S.ENDED, _S.FAILED}),
        _S.STARTING: frozenset({_S.ACTIVE, _S.DRAINING, _S.ENDED, _S.FAILED}),
        _S.ACTIVE: frozenset({_S.DRAINING, _S.ENDED, _S.FAILED}),
        _S.DRAINING: frozenset({_S.ENDED, _S.FAILED}),
        _S.ENDED: frozenset(),
        _S.FAILED: frozenset(),
    },
)
EPISODE_GRACE_S = 10.0  # how long a drained agent runner lets episodes run if their job continues
STEP_GRACE_S = 5.0  # how long the trainer of a cancelled job lets its step finish
LIVE_PHASE_STATES = frozenset({_S.LEASED, _S.STARTING, _S.ACTIVE, _S.DRAINING})
