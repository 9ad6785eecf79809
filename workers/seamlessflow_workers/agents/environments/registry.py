"""From the `environment` section of a job to the environment that runs its episodes."""

from seamlessflow.core.job_spec import EnvironmentSection
from seamlessflow_workers.agents.environments.base import Environment


class NotRunHere(ValueError):
    """Agents of this job are started outside the platform."""


def environment_create(section: EnvironmentSection, *, base_url: str) -> Environment:
    """Call inside the running event loop. Raises NotRunHere."""
    # Imported by need: the openai SDK takes half a second to load, and `command` does not use it.
    if section.name == "command":
        from seamlessflow_workers.agents.environments.command import CommandEnvironment

        return CommandEnvironment(section.command)
    if section.name in ("external", "none"):
        where = "its agents run outside the platform" if section.name == "external" else "it has no agents"
        raise NotRunHere(f"environment.name is {section.name!r}: {where}")

    from seamlessflow_workers.agents.environments.openai_client import SharedOpenAI

    clients = SharedOpenAI(base_url)
    if section.name == "calculator":
        from seamlessflow_workers.agents.environments.calculator import CalculatorEnvironment

        return CalculatorEnvironment(clients, max_turns=section.max_turns)

    from seamlessflow_workers.agents.environments.arithmetic import ArithmeticEnvironment

    return ArithmeticEnvironment(clients)
