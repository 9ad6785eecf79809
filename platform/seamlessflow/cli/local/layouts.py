"""The layouts of the demo's machines: two that compute, and one for the agents of each job. A layout only assigns
tags."""

from seamlessflow.cli.local.machines import LocalMachine

MULTIPLEXED = "multiplexed"
AGENT_MACHINES = ("gamma", "delta", "epsilon", "zeta")
MAX_JOBS = len(AGENT_MACHINES)


def _machines(alpha: tuple[str, ...], beta: tuple[str, ...]) -> tuple[LocalMachine, ...]:
    return (
        LocalMachine("alpha", alpha, core=0),
        LocalMachine("beta", beta, core=1),
        LocalMachine(AGENT_MACHINES[0], ("agent",)),
    )


LAYOUTS = {
    MULTIPLEXED: _machines(("rollout", "train"), ("rollout",)),
    "colocated": _machines(("rollout", "train"), ("rollout", "train")),
    "disaggregated": _machines(("train",), ("rollout",)),
}


def machines_of(layout: str, *, num_jobs: int = 1) -> tuple[LocalMachine, ...]:
    """Return the machines of a layout, with as many for agents as there are jobs."""
    more = AGENT_MACHINES[1:num_jobs]
    return (*LAYOUTS[layout], *(LocalMachine(name, ("agent",)) for name in more))
