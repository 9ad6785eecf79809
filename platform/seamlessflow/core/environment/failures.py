"""The kinds of failures of sessions, and which of them are charged to the slot of the session.

A failed session has no outcome. Its slot runs again, as often as it takes if the failure was none of the agent's: a
group that trained from the sessions that a judge or a machine happened to spare would prefer short sessions.
"""

from enum import StrEnum


class FailureKind(StrEnum):
    """agent: the agent broke; setup: what it needs did not start; waiting: a tool or a service did not answer; grading:
    the judge failed or took too long; engine: the policy did not answer; machine: the session's runner is gone;
    timeout: the task's own time was up and the spec says `drop` or `mask`."""

    AGENT = "agent"
    SETUP = "setup"
    WAITING = "waiting"
    GRADING = "grading"
    ENGINE = "engine"
    MACHINE = "machine"
    TIMEOUT = "timeout"


# What a task or its agent does may fail each time, so these use up one of the slot's tries.
CHARGED = frozenset({FailureKind.AGENT, FailureKind.TIMEOUT})
UNCHARGED = frozenset(FailureKind) - CHARGED
