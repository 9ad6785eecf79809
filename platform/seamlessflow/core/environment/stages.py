"""The stages of an episode, which say whose time passes: only time of the stage `agent` counts against `timeout_s`.

An environment marks the stages that are not its agent's:

    with stage(Stage.SETUP):
        sandbox = await start_sandbox()

The episode that runs it listens; without a listener a mark changes nothing. Invariant: an episode is in the stage that
was entered last and not left yet, and in the stage `agent` if there is none.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from enum import StrEnum

from seamlessflow.core.environment.failures import FailureKind


class Stage(StrEnum):
    """setup: the agent's surroundings are made; agent: the agent works; waiting: it waits for a tool server or another
    service that is not its own; grading: a judge grades its work."""

    SETUP = "setup"
    AGENT = "agent"
    WAITING = "waiting"
    GRADING = "grading"


FAILURE_OF = {
    Stage.SETUP: FailureKind.SETUP,
    Stage.AGENT: FailureKind.AGENT,
    Stage.WAITING: FailureKind.WAITING,
    Stage.GRADING: FailureKind.GRADING,
}


class EpisodeStages:
    """The stages that an episode is in. `on_change` is called before the stage changes."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._entered: list[Stage] = []
        self._on_change = on_change
        self.failed_in: Stage | None = None  # the innermost stage that an error left

    @property
    def now(self) -> Stage:
        return self._entered[-1] if self._entered else Stage.AGENT

    def enter(self, stage: Stage) -> None:
        self._on_change()
        self._entered.append(stage)

    def leave(self, stage: Stage) -> None:
        self._on_change()
        self._entered.remove(stage)


_stages: ContextVar[EpisodeStages | None] = ContextVar("episode_stages", default=None)


def stages_listen(stages: EpisodeStages) -> None:
    """Make the tasks that this task starts report their stages to `stages`."""
    _stages.set(stages)


def stages_now() -> EpisodeStages:
    """Return the stages of the running episode; outside an episode, stages to which nothing listens."""
    return _stages.get() or EpisodeStages()


@contextlib.contextmanager
def stage(stage: Stage) -> Iterator[None]:
    """Mark what runs inside as a stage of the running episode."""
    stages = stages_now()
    stages.enter(stage)
    try:
        yield
    except Exception:
        stages.failed_in = stages.failed_in or stage
        raise
    finally:
        stages.leave(stage)
