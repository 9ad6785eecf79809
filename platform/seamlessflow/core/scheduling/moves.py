"""Turns a plan for the fleet into decisions: leases, hand-overs, and what follows a turn to train.

Invariants: a machine that is free is leased, one that works for another job is drained first and promised, one that
is leaving is waited for. A job trains in one place at a time.
"""

import heapq
from collections.abc import Iterator
from uuid import UUID

from seamlessflow.core.lifecycle.phases import EPISODE_GRACE_S
from seamlessflow.core.scheduling.activity import is_running
from seamlessflow.core.scheduling.decisions import Decision, DrainPhase, Lease, LeaseGang, SetNext
from seamlessflow.core.scheduling.passes.hand_overs import hand_over, next_phase
from seamlessflow.core.scheduling.passes.multiplexing import (
    BACK_TO_ROLLOUT,
    EMPTY_TURN_GRACE_S,
    batches_due,
    batches_of_turn,
    is_dedicated,
    only_trains,
    training_decide,
)
from seamlessflow.core.scheduling.passes.placement import working_for
from seamlessflow.core.scheduling.plan import FleetPlan
from seamlessflow.core.scheduling.snapshot import JobView, LivePhase, MachineView, PhaseView
from seamlessflow.core.types.tags import Role

_FREE = "free and may roll out"
_AGENTS = "runs the agents"
_SHORT = "it has fewer engines than its share"


def job_moves(job: JobView, plan: FleetPlan) -> Iterator[Decision]:
    """Yield what an admitted job needs now."""
    live = plan.snapshot.live_phases(job.id)
    yield from _training(job, plan, [one for one in live if one[1].role is Role.TRAIN])
    for machine in () if plan.rests(job, Role.AGENT) else plan.agents.free.get(job.id, ()):
        yield Lease(
            machine_id=machine.id, machine=machine.name, job_id=job.id, role=Role.AGENT, reason=_AGENTS
        )
    owner = (job.id, Role.ROLLOUT)
    for machine in plan.targets.machines_of.get(owner, ()):
        if working_for(machine) != owner and not plan.rests(job, Role.ROLLOUT):
            yield from _move_in(job, machine)


def _training(job: JobView, plan: FleetPlan, live: list[LivePhase]) -> Iterator[Decision]:
    members = plan.targets.machines_of.get((job.id, Role.TRAIN), [])
    if not live:
        if len(members) >= job.num_train_machines and not plan.rests(job, Role.TRAIN):
            yield from training_decide(job, members)
        return
    for machine, phase in live:
        if job.has_rollout and not is_dedicated(machine) and _found_nothing(job, phase):
            yield DrainPhase(
                phase_id=phase.id,
                machine=machine.name,
                reason="no full batch is left to train; back to rollout",
                then=BACK_TO_ROLLOUT,
            )


def _found_nothing(job: JobView, phase: PhaseView) -> bool:
    return not phase.is_leaving and not job.num_due_batches and phase.age_s >= EMPTY_TURN_GRACE_S


def _move_in(job: JobView, machine: MachineView) -> Iterator[Decision]:
    phase = machine.phase
    if phase is None:
        yield Lease(
            machine_id=machine.id, machine=machine.name, job_id=job.id, role=Role.ROLLOUT, reason=_FREE
        )
    elif not phase.is_leaving:
        yield hand_over(job, Role.ROLLOUT, machine, phase, reason=_SHORT)


def agent_drains(plan: FleetPlan) -> Iterator[DrainPhase]:
    """Yield drains of agents that leave for others, or for other machines of their own job."""
    for (machine, phase), reason in plan.agents.leaving.values():
        yield DrainPhase(phase_id=phase.id, machine=machine.name, reason=reason, grace_s=EPISODE_GRACE_S)


def next_moves(plan: FleetPlan) -> Iterator[SetNext]:
    """Yield what machines should do next if that is not what was decided for them before: those that are leaving, and
    those whose turn to train will end."""
    jobs = {job.id: job for job in plan.floors.served}
    for machine in plan.snapshot.machines:
        phase = machine.phase
        if phase is None or phase.gang is not None or not (phase.is_leaving or phase.role is Role.TRAIN):
            continue
        number = plan.fleet.class_of.get(machine.id)
        if number is None:
            continue
        wanted: tuple[JobView, Role] | None = None
        if phase.is_leaving:
            owner = plan.targets.owner_of.get(machine.id)
            wanted = (jobs[owner[0]], owner[1]) if owner is not None else None
        elif phase.role is Role.TRAIN and phase.num_batches is not None and phase.job_id in jobs:
            wanted = plan.shares.take_next(number, jobs[phase.job_id])
        if wanted is None or (wanted[1] is Role.TRAIN and wanted[0].trains_in_gangs):
            continue
        if _promised(phase) != (wanted[0].id, wanted[1]):
            yield _set_next(machine, phase, *wanted)


def _promised(phase: PhaseView) -> tuple[UUID, Role] | None:
    return None if phase.then is None else (phase.then.job_id or phase.job_id, phase.then.role)


def _set_next(machine: MachineView, phase: PhaseView, job: JobView, role: Role) -> SetNext:
    reason = batches_due(job) if role is Role.TRAIN else _SHORT
    num_batches = batches_of_turn(job) if role is Role.TRAIN else None
    then = next_phase(job, role, phase, reason=reason, num_batches=num_batches)
    return SetNext(phase_id=phase.id, machine=machine.name, then=then, reason=reason)


def spare_leases(plan: FleetPlan) -> Iterator[Lease | LeaseGang]:
    """Yield leases of free machines that no job needs at this moment, so that engines are ready when turns come."""
    free = [
        machine
        for machine in plan.snapshot.machines
        if machine.phase is None
        and machine.id in plan.fleet.class_of
        and machine.id not in plan.targets.owner_of
    ]
    yield from _spare_trainers(plan, [machine for machine in free if only_trains(machine)])
    yield from _spare_engines(plan, [machine for machine in free if not is_dedicated(machine)])


def _spare_trainers(plan: FleetPlan, free: list[MachineView]) -> Iterator[Lease | LeaseGang]:
    """A trainer on machines that only train is kept there, so that its next batch finds it ready."""
    for job in plan.floors.served if free else ():
        live = plan.snapshot.live_phases(job.id)
        trains = any(phase.role is Role.TRAIN for _, phase in live)
        has_trainer = trains or (job.id, Role.TRAIN) in plan.targets.machines_of
        if has_trainer or not job.has_rollout or not job.num_remaining_updates or not is_running(job, live):
            continue
        if plan.rests(job, Role.TRAIN):
            continue
        classes = plan.fleet.classes_for(job, Role.TRAIN)
        able = [machine for machine in free if plan.fleet.class_of[machine.id] in classes]
        able.sort(key=lambda machine: (machine.id not in job.trainer_state, machine.name))
        most = job.num_train_machines + job.extra_train_machines
        members = plan.shares.add_spares(job, able[:most], least=job.num_train_machines)
        if not members:
            continue
        free = [machine for machine in free if machine not in members]
        for decision in training_decide(job, members):
            assert isinstance(decision, Lease | LeaseGang)
            yield decision


def _spare_engines(plan: FleetPlan, free: list[MachineView]) -> Iterator[Lease]:
    waiting: dict[int, list[tuple[tuple[float, float], int]]] = {}
    jobs = [job for job in plan.floors.served if job.has_rollout and not plan.rests(job, Role.ROLLOUT)]
    for machine in free:
        number = plan.fleet.class_of[machine.id]
        if number not in waiting:
            waiting[number] = [
                (plan.shares.level(job), index)
                for index, job in enumerate(jobs)
                if number in plan.fleet.classes_for(job, Role.ROLLOUT)
            ]
            heapq.heapify(waiting[number])
        while waiting[number]:
            _, index = waiting[number][0]
            job = jobs[index]
            if plan.shares.add_spare(job, machine):
                heapq.heapreplace(waiting[number], (plan.shares.level(job), index))
                yield Lease(
                    machine_id=machine.id, machine=machine.name, job_id=job.id, role=Role.ROLLOUT,
                    reason=_FREE,
                )  # fmt: skip
                break
            heapq.heappop(waiting[number])
