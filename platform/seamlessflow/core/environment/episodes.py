"""What an environment is (it runs one episode of an agent on one task), and what grades an answer.

An episode takes a task (one line of the tasks file) and the address of the policy, and gives an outcome or fails. A
reward and the task's own timeout are outcomes. An episode that broke for another reason has none and runs again
elsewhere. Built-in and installed environments implement the same protocols (docs/extensions.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from seamlessflow.core.environment.failures import FailureKind

POLICY_MODEL = "policy"  # the model name that agents ask for

Task = Mapping[str, Any]


class BrokenEpisode(RuntimeError):
    """The episode ended without an outcome; the message says what broke. `kind`: by default that of its stage."""

    def __init__(self, message: str, *, kind: FailureKind | None = None) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class PolicyEndpoint:
    """The address and the key of the policy, for one session."""

    base_url: str  # ends in /v1
    api_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    reward: float
    is_timeout: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    answer: str | None = None  # the agent's final answer, which a reward function grades


class Environment(Protocol):
    async def run(self, task: Task, policy: PolicyEndpoint) -> Outcome:
        """Run one episode. Many run at once, and each may be cancelled at any time. Raises BrokenEpisode."""
        ...

    async def close(self) -> None: ...


class RewardFunction(Protocol):
    async def grade(self, task: Task, answer: str) -> float:
        """Return the reward of an answer, finite and from -1e6 to 1e6. May be cancelled. Raises BrokenEpisode."""
        ...

    async def close(self) -> None: ...
