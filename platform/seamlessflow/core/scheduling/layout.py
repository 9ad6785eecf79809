"""Which machine fills which role of one job.

One machine runs the agents (none if they are external), one trains, all others that may roll out do. The training
machine may be one of those that roll out: then the two take turns (`multiplexing`). Agents need a machine of their own.
A job on recorded trajectories trains and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from seamlessflow.core.scheduling.filters import Claims, candidates, shortage
from seamlessflow.core.scheduling.scores import agent_key, train_key
from seamlessflow.core.scheduling.snapshot import JobView, MachineView
from seamlessflow.core.types.tags import Role


@dataclass(frozen=True, slots=True)
class Layout:
    """`shortages` has one clause for each role that nobody can fill."""

    agent: MachineView | None
    train: MachineView | None
    rollout: tuple[MachineView, ...]
    shortages: tuple[str, ...]

    @property
    def machines(self) -> tuple[MachineView, ...]:
        chosen = [machine for machine in (self.agent, self.train) if machine is not None]
        return (*chosen, *(machine for machine in self.rollout if machine not in chosen))


def layout_choose(job: JobView, machines: Sequence[MachineView], claims: Claims) -> Layout:
    """The best layout that fills every role; if there is none, the best for as many roles as possible."""
    if not job.has_agents:
        return _with_agent(job, None, machines, claims)
    agents = sorted(candidates(machines, job, Role.AGENT, claims), key=lambda m: agent_key(m, job.id))
    layouts = [_with_agent(job, agent, machines, claims) for agent in agents]
    if not layouts:
        return _with_agent(job, None, machines, claims)
    return min(layouts, key=lambda layout: len(layout.shortages))  # the first of the best: agents are sorted


def _with_agent(
    job: JobView, agent: MachineView | None, machines: Sequence[MachineView], claims: Claims
) -> Layout:
    others = [machine for machine in machines if agent is None or machine.id != agent.id]
    trainers = sorted(candidates(others, job, Role.TRAIN, claims), key=lambda m: train_key(m, job.id))
    rollout = tuple(candidates(others, job, Role.ROLLOUT, claims)) if job.has_rollout else ()
    filled = {Role.ROLLOUT: bool(rollout) or not job.has_rollout, Role.TRAIN: bool(trainers)}
    filled[Role.AGENT] = agent is not None or not job.has_agents
    missing = tuple(
        shortage(machines, job, role, claims) for role, is_filled in filled.items() if not is_filled
    )
    return Layout(agent=agent, train=trainers[0] if trainers else None, rollout=rollout, shortages=missing)
