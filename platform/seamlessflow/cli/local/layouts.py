"""The layouts of the demo's machines: two that compute, or one with two devices, and one for the agents of all jobs.

The first ones only assign tags.
"""

from seamlessflow.cli.local.machines import LocalMachine

MULTIPLEXED = "multiplexed"
NODE = "node"  # one machine with several devices
MAX_JOBS = 4  # as many as a machine runs agents for, by default


def _machines(alpha: tuple[str, ...], beta: tuple[str, ...]) -> tuple[LocalMachine, ...]:
    return (
        LocalMachine("alpha", alpha, core=0),
        LocalMachine("beta", beta, core=1),
        LocalMachine("gamma", ("agent",)),
    )


def num_devices(layout: str) -> int:
    """Return how many devices the machine with the most has."""
    return max(len(machine.core_devices) or 1 for machine in LAYOUTS[layout])


LAYOUTS = {
    MULTIPLEXED: _machines(("rollout", "train"), ("rollout",)),
    "colocated": _machines(("rollout", "train"), ("rollout", "train")),
    "disaggregated": _machines(("train",), ("rollout",)),
    NODE: (
        LocalMachine("alpha", ("rollout", "train"), core_devices=(0, 1)),
        LocalMachine("gamma", ("agent",)),
    ),
}
