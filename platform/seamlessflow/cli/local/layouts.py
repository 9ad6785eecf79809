"""The layouts of the demo's machines: two that compute, and one for the agents of all jobs. A layout only assigns
tags."""

from seamlessflow.cli.local.machines import LocalMachine

MULTIPLEXED = "multiplexed"
MAX_JOBS = 4  # as many as a machine runs agents for, by default


def _machines(alpha: tuple[str, ...], beta: tuple[str, ...]) -> tuple[LocalMachine, ...]:
    return (
        LocalMachine("alpha", alpha, core=0),
        LocalMachine("beta", beta, core=1),
        LocalMachine("gamma", ("agent",)),
    )


LAYOUTS = {
    MULTIPLEXED: _machines(("rollout", "train"), ("rollout",)),
    "colocated": _machines(("rollout", "train"), ("rollout", "train")),
    "disaggregated": _machines(("train",), ("rollout",)),
}
