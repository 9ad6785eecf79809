"""Quotas, kept at every moment: no lease takes a project beyond its quota, whatever it still holds.

`shares` counts what jobs should have. Those that they have besides (no job needs them, or they are leaving)
counts here, so that leases wait until it is gone. What follows a phase is leased without a cycle, so each lease counts
once more under its locks. An agent phase counts as a machine.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from uuid import UUID

from seamlessflow.core.lifecycle.phases import EPISODE_GRACE_S
from seamlessflow.core.scheduling.decisions import Decision, DrainPhase, Lease, LeaseGang
from seamlessflow.core.scheduling.plan import FleetPlan
from seamlessflow.core.scheduling.snapshot import JobView, LivePhase
from seamlessflow.core.types.tags import Role


def quota_drains(plan: FleetPlan) -> Iterator[DrainPhase]:
    """Yield drains of machines that a project does not need and that keep it from machines that it should have."""
    limited = _limited(plan)
    num_given: dict[UUID, int] = defaultdict(int)
    kept: dict[UUID, list[LivePhase]] = defaultdict(list)
    for machine in plan.snapshot.machines if limited else ():
        owner, phase = plan.targets.owner_of.get(machine.id), machine.phase
        if owner is not None and owner[0] in limited:
            num_given[limited[owner[0]].project_id] += 1
        elif owner is None and phase is not None and not phase.is_leaving and phase.job_id in limited:
            kept[limited[phase.job_id].project_id].append((machine, phase))
    for job_id in limited:
        num_given[limited[job_id].project_id] += plan.agents.num_given.get(job_id, 0)
    for machine, phase in plan.agents.spare:
        if phase.job_id in limited:
            kept[limited[phase.job_id].project_id].append((machine, phase))
    quotas = {job.project_id: job.project_quota for job in limited.values()}
    for project, machines in kept.items():
        quota = quotas[project]
        num_over = num_given[project] + len(machines) - quota if quota is not None else 0
        for machine, phase in machines[: max(0, num_over)]:
            grace_s = EPISODE_GRACE_S if phase.role is Role.AGENT else None
            reason = f"its project may hold {quota} machines and needs another one more"
            yield DrainPhase(phase_id=phase.id, machine=machine.name, reason=reason, grace_s=grace_s)


def within_quotas(decisions: Iterable[Decision], plan: FleetPlan) -> Iterator[Decision]:
    """Yield the decisions without the leases that would take a project beyond its quota now."""
    limited = _limited(plan)
    num_held: dict[UUID, int] = defaultdict(int)
    for job in limited.values():
        num_held[job.project_id] += len(plan.snapshot.live_phases(job.id))
    for decision in decisions:
        if isinstance(decision, Lease | LeaseGang) and (limit := limited.get(decision.job_id)) is not None:
            num = len(decision.machines) if isinstance(decision, LeaseGang) else 1
            assert limit.project_quota is not None
            if num_held[limit.project_id] + num > limit.project_quota:
                continue
            num_held[limit.project_id] += num
        yield decision


def _limited(plan: FleetPlan) -> dict[UUID, JobView]:
    return {job.id: job for job in plan.snapshot.jobs if job.project_quota is not None}
