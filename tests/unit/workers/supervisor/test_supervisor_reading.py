"""Which ledger state holds when several things happen at once."""

import dataclasses
from uuid import UUID

import pytest

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.phases.running import PhaseView
from seamlessflow_workers.supervisor.ledger import Reading
from seamlessflow_workers.supervisor.reading import MachineView, machine_reading

JOB = UUID(int=1)
ACTIVE, STARTING, DRAINING = PhaseState.ACTIVE, PhaseState.STARTING, PhaseState.DRAINING


def view(
    phase: PhaseView | None = None,
    *,
    previous_role: Role | None = None,
    is_loading: bool = False,
    num_jobs: int = 1,
    is_cordoned: bool = False,
    agents: tuple[PhaseView, ...] = (),
    awaits_gang_of: UUID | None = None,
) -> MachineView:
    jobs = frozenset(UUID(int=number) for number in range(1, num_jobs + 1))
    return MachineView(phase, previous_role, is_loading, jobs, is_cordoned, agents, awaits_gang_of)


def rollout(state: PhaseState, **details: object) -> PhaseView:
    return PhaseView(Role.ROLLOUT, state, JOB, **details)  # type: ignore[arg-type]


def train(state: PhaseState, **details: object) -> PhaseView:
    return PhaseView(Role.TRAIN, state, JOB, **details)  # type: ignore[arg-type]


CASES: dict[str, tuple[MachineView, LedgerState, IdleCause | None]] = {
    "requests in flight": (view(rollout(ACTIVE, num_in_flight=1)), LedgerState.SERVING, None),
    "none in flight": (view(rollout(ACTIVE)), LedgerState.IDLE, IdleCause.NO_REQUESTS),
    "an update goes before requests": (
        view(rollout(ACTIVE, num_in_flight=3, doing=LedgerState.SYNCING)), LedgerState.SYNCING, None,
    ),
    "draining goes before requests": (view(rollout(DRAINING, num_in_flight=3)), LedgerState.DRAINING, None),
    "the first phase starts": (view(rollout(STARTING), is_loading=True), LedgerState.STARTING, None),
    "a change of role switches": (view(train(STARTING), previous_role=Role.ROLLOUT), LedgerState.SWITCHING, None),
    "the same role starts again": (view(train(STARTING), previous_role=Role.TRAIN), LedgerState.STARTING, None),
    "weights are awaited": (
        view(rollout(STARTING, is_awaiting_weights=True)), LedgerState.IDLE, IdleCause.AWAITING_WEIGHTS,
    ),
    "the trainer trains": (view(train(ACTIVE, doing=LedgerState.TRAINING)), LedgerState.TRAINING, None),
    "the trainer waits": (view(train(ACTIVE, doing=LedgerState.IDLE)), LedgerState.IDLE, IdleCause.NO_BATCH),
    "the trainer says what it waits for": (
        view(train(ACTIVE, doing=LedgerState.IDLE, doing_cause=IdleCause.AWAITING_WEIGHTS)),
        LedgerState.IDLE, IdleCause.AWAITING_WEIGHTS,
    ),
    "members of a gang are awaited": (
        view(train(STARTING, doing=LedgerState.IDLE, doing_cause=IdleCause.AWAITING_GANG), previous_role=Role.ROLLOUT),
        LedgerState.IDLE, IdleCause.AWAITING_GANG,
    ),
    "kept free for a gang": (
        view(previous_role=Role.ROLLOUT, awaits_gang_of=JOB), LedgerState.IDLE, IdleCause.AWAITING_GANG,
    ),
    "a phase ended and a job keeps a warm process": (
        view(previous_role=Role.TRAIN, is_loading=True), LedgerState.IDLE, IdleCause.AWAITING_ORDERS,
    ),
    "the first child loads ahead": (view(is_loading=True), LedgerState.STARTING, None),
    "no job": (view(num_jobs=0), LedgerState.IDLE, IdleCause.NO_JOB),
    "cordoned": (view(is_cordoned=True), LedgerState.IDLE, IdleCause.CORDONED),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_reading(name: str) -> None:
    machine, state, cause = CASES[name]
    assert machine_reading(machine) == Reading(state, cause, JOB if machine.warm_jobs else None)


def agents(state: PhaseState = ACTIVE, *, job: UUID = JOB, **details: object) -> PhaseView:
    return PhaseView(Role.AGENT, state, job, **details)  # type: ignore[arg-type]


BUSY = agents(doing=LedgerState.RUNNING_AGENTS)
OTHERS = agents(doing=LedgerState.RUNNING_AGENTS, job=UUID(int=2))


@pytest.mark.parametrize(
    "machine, expected",
    [
        (view(agents=(BUSY,)), Reading(LedgerState.RUNNING_AGENTS, None, JOB)),
        (view(agents=(agents(), BUSY)), Reading(LedgerState.RUNNING_AGENTS, None, JOB)),
        (view(agents=(BUSY, OTHERS)), Reading(LedgerState.RUNNING_AGENTS)),
        (view(agents=(agents(), agents(DRAINING))), Reading(LedgerState.DRAINING, None, JOB)),
        (view(agents=(agents(),)), Reading(LedgerState.IDLE, IdleCause.NO_GROUPS, JOB)),
        (
            view(agents=(agents(STARTING),), previous_role=Role.ROLLOUT),
            Reading(LedgerState.STARTING, None, JOB),
        ),
        (view(rollout(ACTIVE), agents=(OTHERS,)), Reading(LedgerState.IDLE, IdleCause.NO_REQUESTS, JOB)),
        (
            view(train(ACTIVE, doing=LedgerState.TRAINING), agents=(BUSY,)),
            Reading(LedgerState.TRAINING, None, JOB),
        ),
    ],
)
def test_agents_are_what_a_machine_does_unless_it_rolls_out_or_trains(
    machine: MachineView, expected: Reading
) -> None:
    assert machine_reading(machine) == expected


def test_time_between_jobs_belongs_to_none_of_them() -> None:
    assert machine_reading(view(num_jobs=2)).job_id is None


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[0].phase])
def test_how_many_requests_are_in_flight_changes_no_reading_while_there_are_any(name: str) -> None:
    of = CASES[name][0]
    assert of.phase is not None
    one, many = (
        dataclasses.replace(of, phase=dataclasses.replace(of.phase, num_in_flight=number))
        for number in (1, 7)
    )
    assert machine_reading(one) == machine_reading(many)
