"""The environments and reward functions that come with the platform, declared as third parties declare theirs.

They are a table rather than entry points of this package, so that an installation whose metadata is older than its
sources still knows them. No extension can take their names.
"""

from types import MappingProxyType

from seamlessflow.core.extensions.declarations import EnvironmentExtension, Extensions, RewardExtension

_ENVIRONMENTS = "seamlessflow_workers.agents.environments"

BUILT_IN = Extensions(
    environments=MappingProxyType(
        {
            "arithmetic": EnvironmentExtension(
                summary="One question, one answer.",
                factory=f"{_ENVIRONMENTS}.arithmetic:create",
                gives_answer=True,
            ),
            "calculator": EnvironmentExtension(
                summary="Questions that the agent may answer with a calculator tool, over several turns.",
                factory=f"{_ENVIRONMENTS}.calculator:create",
                gives_answer=True,
            ),
            "command": EnvironmentExtension(
                summary="Any program, started once per session.",
                factory=f"{_ENVIRONMENTS}.command:create",
            ),
        }
    ),
    advantages=MappingProxyType({}),
    rewards=MappingProxyType(
        {
            "exact_answer": RewardExtension(
                summary="1 if the answer is exactly the task's `answer`, otherwise 0.",
                factory="seamlessflow_workers.agents.rewards.exact_answer:create",
            )
        }
    ),
)
