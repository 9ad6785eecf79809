"""From the `environment` section of a job to the environment that runs its episodes."""

from seamlessflow.core.job_spec import EnvironmentSection
from seamlessflow_workers.agents.environments.arithmetic import ArithmeticEnvironment
from seamlessflow_workers.agents.environments.base import Environment
from seamlessflow_workers.agents.environments.calculator import CalculatorEnvironment
from seamlessflow_workers.agents.environments.command import CommandEnvironment
from seamlessflow_workers.agents.environments.policy_client import PolicyClient


class NotRunHere(ValueError):
    """Agents of this job are started outside the platform."""


def environment_create(section: EnvironmentSection) -> Environment:
    """Call inside the running event loop. Raises NotRunHere."""
    if section.name == "command":
        return CommandEnvironment(section.command)
    if section.name in ("external", "none"):
        where = "its agents run outside the platform" if section.name == "external" else "it has no agents"
        raise NotRunHere(f"environment.name is {section.name!r}: {where}")
    client = PolicyClient()
    if section.name == "calculator":
        return CalculatorEnvironment(client, max_turns=section.max_turns)
    return ArithmeticEnvironment(client)
