"""The sides of the comparison: which tags the machines have, and how far generation may be ahead of
training.

All sides are the same platform with other settings. `SYNCHRONOUS` and `ONE_STEP_OFF` are the usual
baselines. The unbounded side never waits for a bound: it shows the most that two kinds of machines
can reach, at a staleness that nobody would choose.
"""

from dataclasses import dataclass

from seamlessflow.cli.local.machines import LocalMachine
from seamlessflow.core.types.tags import Role

BOUND = 3  # largest staleness of the sides that are not baselines by their staleness
FAR_AHEAD = 1000


@dataclass(frozen=True, slots=True)
class Side:
    """What the first machine may do, and what the others may do."""

    name: str
    first: frozenset[Role]
    others: frozenset[Role]
    max_staleness: int

    @property
    def is_synchronous(self) -> bool:
        """True if nothing is begun ahead, so that all batches from the second on are alike."""
        return self.max_staleness == 0


_ROLLOUT, _TRAIN, _BOTH = (
    frozenset({Role.ROLLOUT}),
    frozenset({Role.TRAIN}),
    frozenset({Role.ROLLOUT, Role.TRAIN}),
)
SYNCHRONOUS = Side("disaggregated, synchronous", _TRAIN, _ROLLOUT, 0)
ONE_STEP_OFF = Side("disaggregated, one step off", _TRAIN, _ROLLOUT, 1)
COLOCATED = Side("colocated, synchronous", _BOTH, _BOTH, 0)
UNBOUNDED = Side("disaggregated, unbounded", _TRAIN, _ROLLOUT, FAR_AHEAD)
DISAGGREGATED = Side("disaggregated", _TRAIN, _ROLLOUT, BOUND)
MULTIPLEXED = Side("multiplexed", _BOTH, _ROLLOUT, BOUND)
SIDES = (MULTIPLEXED, SYNCHRONOUS, ONE_STEP_OFF, COLOCATED, UNBOUNDED)


def machines_of(num_machines: int, *, module: str, is_pinned: bool) -> tuple[LocalMachine, ...]:
    """Return `num_machines` that share the work, and one for the agents. Each run retags them for
    its side."""
    working = tuple(
        LocalMachine(f"machine-{number}", ("rollout",), core=number if is_pinned else None, module=module)
        for number in range(num_machines)
    )
    return (*working, LocalMachine("runner", (Role.AGENT,), module=module))


def tags_of(side: Side, machine: LocalMachine) -> list[str]:
    if Role.AGENT in machine.tags:
        return [Role.AGENT]
    return sorted(side.first if machine.name == "machine-0" else side.others)
