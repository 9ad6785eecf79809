"""Creates the environment that a job's `environment` section names, built in or installed."""

from seamlessflow.core.environment.episodes import Environment, RewardFunction
from seamlessflow.core.environment.section import UNMANAGED, EnvironmentSection
from seamlessflow.core.extensions.declarations import EnvironmentContext, Extensions
from seamlessflow.runtime.extensions import (
    extensions_installed,
    factory_call,
    not_installed,
    options_load,
)
from seamlessflow_workers.agents.rewards.graded import GradedEnvironment


class NotRunHere(ValueError):
    """Agents of this job are started outside the platform."""


def environment_create(section: EnvironmentSection, extensions: Extensions | None = None) -> Environment:
    """Create an environment; call it inside the running event loop. Raises NotRunHere, UnusableExtension.

    `extensions` are by default those installed here.
    """
    if section.name in UNMANAGED:
        where = "its agents run outside the platform" if section.name == "external" else "it has no agents"
        raise NotRunHere(f"environment.name is {section.name!r}: {where}")
    known = extensions_installed() if extensions is None else extensions
    extension = known.environments.get(section.name)
    if extension is None:
        raise not_installed("environment.name", section.name, known.environment_names)
    reward = None if section.reward is None else _reward_create(section.reward, section, known)
    options = options_load("environment.options", section.options, extension.options)
    environment: Environment = factory_call(
        section.name, extension.factory, EnvironmentContext(section, options)
    )
    return environment if reward is None else GradedEnvironment(environment, reward)


def _reward_create(name: str, section: EnvironmentSection, extensions: Extensions) -> RewardFunction:
    extension = extensions.rewards.get(name)
    if extension is None:
        raise not_installed("environment.reward", name, extensions.rewards)
    options = options_load("environment.reward_options", section.reward_options, extension.options)
    reward: RewardFunction = factory_call(name, extension.factory, options)
    return reward
