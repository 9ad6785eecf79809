"""Why a job does not make progress, in at most 500 characters for people to read; "" if it does.

Takes a job that should run and the plan of the cycle.
"""

from collections.abc import Iterator, Sequence
from uuid import UUID

from seamlessflow.core.scheduling.activity import has_active, is_up
from seamlessflow.core.scheduling.eligibility import (
    FIT_FILTERS,
    first_rejection,
    passing_rejection,
)
from seamlessflow.core.scheduling.passes.gangs import gang_wait
from seamlessflow.core.scheduling.plan import FleetPlan
from seamlessflow.core.scheduling.snapshot import JobView, LivePhase, MachineView
from seamlessflow.core.types.tags import Role

MAX_SHOWN = 5  # machines that a reason names; a fleet has thousands
MAX_CHARACTERS = 500


def waiting_reason(job: JobView, plan: FleetPlan) -> str:
    reason = _why(job, plan)
    return reason if len(reason) <= MAX_CHARACTERS else f"{reason[: MAX_CHARACTERS - 1]}…"


def state_reason(job: JobView, waiting: str) -> str:
    """Return why the job is in its state: a phase that it waits for, a failure, or that all its phases are active."""
    if waiting:
        return waiting
    if not job.has_rollout:
        return "the trainer is active"
    return "an engine and the agents are active" if job.has_agents else "an engine is active"


def _why(job: JobView, plan: FleetPlan) -> str:
    live = plan.snapshot.live_phases(job.id)
    if job.id in plan.floors.missing:
        return plan.displaced.get(job.id) or _why_not_admitted(job, plan)
    if job.num_failures and job.last_failure:
        return f"retrying after {job.num_failures} failed phases; last failure: {job.last_failure}"
    members = plan.targets.machines_of.get((job.id, Role.TRAIN), ())
    if wait := gang_wait(members, live) if job.trains_in_gangs else "":
        return wait
    if is_up(job, live):
        is_measured_last = job.num_remaining_updates == 0
        return "all updates are published; the last version is being evaluated" if is_measured_last else ""
    if not job.has_rollout:
        return "waiting for the trainer to become active"
    if _is_training_alone(live):
        where = "all machines that roll out" if job.trains_in_gangs else "the only machine that rolls out"
        return f"training on {where}; requests are held meanwhile"
    missing = [] if has_active(live, Role.ROLLOUT) else ["an engine"]
    missing += [] if not job.has_agents or has_active(live, Role.AGENT) else ["the agents"]
    has_engine = any(phase.role is Role.ROLLOUT for _, phase in live)
    if missing == ["an engine"] and not has_engine and not plan.demands[job.id].rollout:
        return "no request waits for an engine, so its machines work for other jobs"
    return f"waiting for {' and '.join(missing)} to become active"


def _why_not_admitted(job: JobView, plan: FleetPlan) -> str:
    lacking = plan.floors.missing[job.id]
    if not lacking:
        return f"its project holds all of the {job.project_quota} machines that it may hold"
    return "; ".join(_shortage(job, role, plan) for role in lacking)


def _shortage(job: JobView, lacking: Role, plan: FleetPlan) -> str:
    """Return why the job lacks the role: the same for all jobs of a kind that have and avoid no machine."""
    if plan.fleet.is_choosy(job) or plan.snapshot.live_phases(job.id):
        return _shortage_of(job, lacking, plan)
    needs = job.needs and job.needs.key
    kind = (
        lacking,
        job.tags_of(lacking),
        job.pools,
        job.engine,
        needs,
        job.least_ranks,
        job.num_train_machines,
        job.extra_train_machines,
        job.project_id,
    )
    if kind not in plan.shortages:
        plan.shortages[kind] = _shortage_of(job, lacking, plan)
    return plan.shortages[kind]


def _shortage_of(job: JobView, lacking: Role, plan: FleetPlan) -> str:
    tagged = plan.fleet.tagged(job.tags_of(lacking))
    wanted = ", ".join(sorted(job.tags_of(lacking)))
    if lacking is Role.TRAIN and job.trains_in_gangs:
        return _why_no_gang(job, tagged, wanted, plan)
    if not tagged:
        return f"no machine has the tags for role {lacking}: {wanted}"
    return f"no machine is free for role {lacking}: {_first('; ', tagged, job, lacking, plan)}"


def _why_no_gang(job: JobView, tagged: Sequence[MachineView], wanted: str, plan: FleetPlan) -> str:
    able = plan.fleet.able(job, Role.TRAIN)
    names = ", ".join([*(one.name for one in able[:MAX_SHOWN]), *_more(len(able))])
    least = "at least " if job.extra_train_machines else ""
    text = f"{least}{job.num_train_machines} machines must train together, but {len(able) or 'none'} can"
    text += f" ({names})" if names else ""
    if len(tagged) < job.num_train_machines:
        return f"{text}: {len(tagged) or 'none'} {'has' if len(tagged) == 1 else 'have'} the tags: {wanted}"
    able_ids = {one.id for one in able}
    unable = [one for one in tagged if one.id not in able_ids]
    return (
        f"{text}: {_first('; ', unable, job, Role.TRAIN, plan) or 'one of them is needed for another role'}"
    )


def _first(separator: str, machines: Sequence[MachineView], job: JobView, role: Role, plan: FleetPlan) -> str:
    """Return why the first machines are not available, and how many there are besides."""
    reasons = [_why_not(machine, job, role, plan) for machine in machines[:MAX_SHOWN]]
    return separator.join([*reasons, *_more(len(machines))])


def _more(num: int) -> Iterator[str]:
    if num > MAX_SHOWN:
        yield f"and {num - MAX_SHOWN} more"


def _why_not(machine: MachineView, job: JobView, role: Role, plan: FleetPlan) -> str:
    lasting = first_rejection(FIT_FILTERS, machine, job, role) or passing_rejection(machine, job, role)
    if lasting is not None:
        return lasting
    if plan.fleet.avoids(job, role, machine):
        return f"its {role} phase failed on {machine.name} lately"
    if role is Role.AGENT:
        num, holders = machine.agent_slots, [phase.job_id for phase in machine.agents]
        if num > 1:
            return f"the {num} slots of {machine.name} are for agents of other jobs"
        return f"{machine.name} is held by {_named(holders[0] if holders else None, job, plan)}"
    owner = plan.targets.owner_of.get(machine.id)
    holder = owner[0] if owner is not None else machine.phase.job_id if machine.phase is not None else None
    if holder is None or holder == job.id:
        return f"{machine.name} is needed for another role"
    return f"{machine.name} is held by {_named(holder, job, plan)}"


def _named(holder: UUID | None, job: JobView, plan: FleetPlan) -> str:
    other = plan.snapshot.job(holder) if holder is not None else None
    # Jobs of other projects are not named.
    is_named = other is not None and other.name and other.project_id == job.project_id
    return f'the job "{other.name}"' if is_named and other is not None else "another job"


def _is_training_alone(live: Sequence[LivePhase]) -> bool:
    rolls_out = any(phase.role is Role.ROLLOUT for _, phase in live)
    return has_active(live, Role.TRAIN) and not rolls_out
