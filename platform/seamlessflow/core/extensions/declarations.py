"""What an installed extension declares, and the registry of all installed extensions.

A declaration is a small object that every process can load: options, a summary, and the name of the factory that makes
the implementation; only the process that needs that one imports it. Invariant: nothing here imports an extension. Each
process gets the registry as a value from its composition root (`runtime.extensions`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow.core.environment.section import UNMANAGED, EnvironmentSection
from seamlessflow.core.spec_section import SpecSection

ENVIRONMENTS = "seamlessflow.environments"
ADVANTAGES = "seamlessflow.advantages"
REWARDS = "seamlessflow.rewards"


class ExtensionOptions(SpecSection):
    """Base class of an extension's options: strict and frozen. Docstrings of fields become descriptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentExtension:
    """Declares an environment. `factory`: `module:name` of a callable from an EnvironmentContext to an Environment."""

    summary: str
    factory: str
    options: type[ExtensionOptions] = ExtensionOptions
    gives_answer: bool = False
    """Whether its outcomes have an `answer`, which a reward function of the job can grade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageExtension:
    """Declares an advantage estimator. `factory` names a callable, `module:name`, from the options to an Estimator."""

    summary: str
    factory: str
    options: type[ExtensionOptions] = ExtensionOptions
    is_group_relative: bool = True
    """Whether equal rewards within a group give advantages of exactly zero, as dynamic sampling requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardExtension:
    """Declares a reward function. `factory` names a callable, `module:name`, from the options to a RewardFunction."""

    summary: str
    factory: str
    options: type[ExtensionOptions] = ExtensionOptions


@dataclass(frozen=True, slots=True)
class EnvironmentContext:
    """The argument of an environment's factory, which is called inside the running event loop."""

    section: EnvironmentSection
    options: ExtensionOptions  # an instance of the declared model


@dataclass(frozen=True, slots=True)
class Extensions:
    """Everything that a job spec may name, built-ins included, by name."""

    environments: Mapping[str, EnvironmentExtension]
    advantages: Mapping[str, AdvantageExtension]  # only those installed; built-in: `AdvantageEstimator`
    rewards: Mapping[str, RewardExtension]

    @property
    def environment_names(self) -> list[str]:
        """Return the names of all environments, whether or not the platform runs their agents."""
        return sorted({*self.environments, *UNMANAGED})
