"""Everything that a third party's package should import: declarations, protocols and their values (docs/extensions.md).

Names here stay where they are; the modules behind them may move. Importing this loads no plane and no learning
framework, so every process can load a declaration.
"""

from seamlessflow.core.algorithms.advantage import Floats
from seamlessflow.core.algorithms.estimators import Counts, Estimator
from seamlessflow.core.environment.episodes import (
    POLICY_MODEL,
    BrokenEpisode,
    Environment,
    Outcome,
    PolicyEndpoint,
    RewardFunction,
    Task,
)
from seamlessflow.core.extensions.declarations import (
    AdvantageExtension,
    EnvironmentContext,
    EnvironmentExtension,
    ExtensionOptions,
    RewardExtension,
)

__all__ = [
    "POLICY_MODEL",
    "AdvantageExtension",
    "BrokenEpisode",
    "Counts",
    "Environment",
    "EnvironmentContext",
    "EnvironmentExtension",
    "Estimator",
    "ExtensionOptions",
    "Floats",
    "Outcome",
    "PolicyEndpoint",
    "RewardExtension",
    "RewardFunction",
    "Task",
]
