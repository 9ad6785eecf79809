"""Which machine fills which role of one job.

One machine runs the agents (none if they are external). One machine trains, or as many as the job
needs together. All other machines that may roll out do so. A machine may both train and roll out;
it then alternates between the two (`multiplexing`). Agents need a machine of their own. A job on an
offline dataset only trains.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from seamlessflow.core.scheduling.eligibility import Claims, candidates, shortage
from seamlessflow.core.scheduling.scores import agent_key, train_key
from seamlessflow.core.scheduling.snapshot import JobView, MachineView
from seamlessflow.core.types.tags import Role


@dataclass(frozen=True, slots=True)
class Layout:
    """Which machines fill the roles. `trainers`: as many as there are, up to the number that the job needs. `shortages`
    has one clause for each role that cannot be filled."""

    agent: MachineView | None
    trainers: tuple[MachineView, ...]
    rollout: tuple[MachineView, ...]
    shortages: tuple[str, ...]

    @property
    def train(self) -> MachineView | None:
        """The machine that trains, or the leader of those that do."""
        return self.trainers[0] if self.trainers else None

    @property
    def machines(self) -> tuple[MachineView, ...]:
        chosen = [machine for machine in (self.agent, *self.trainers) if machine is not None]
        return (*chosen, *(machine for machine in self.rollout if machine not in chosen))


def layout_choose(job: JobView, machines: Sequence[MachineView], claims: Claims) -> Layout:
    """Return the best layout that fills every role; if there is none, the best one for as many roles as possible."""
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
    filled = {Role.ROLLOUT: bool(rollout) or not job.has_rollout}
    filled[Role.TRAIN] = len(trainers) >= job.num_train_machines
    filled[Role.AGENT] = agent is not None or not job.has_agents
    missing = tuple(
        shortage(machines, job, role, claims) for role, is_filled in filled.items() if not is_filled
    )
    wanted = tuple(trainers[: job.num_train_machines])
    return Layout(agent=agent, trainers=wanted, rollout=rollout, shortages=missing)
