"""What projects are entitled to: by weight, within quotas, and never more than there is."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.scheduling.explain.entitlements import Entitlement, entitlements
from seamlessflow.core.scheduling.explain.queue import Queue
from seamlessflow.core.scheduling.passes.dividing import Division, Use, divided
from seamlessflow.core.scheduling.snapshot import JobView, MachineView, Snapshot
from seamlessflow.core.types.tags import Role
from tests.unit.core.scheduling.test_scheduling_queue import ALPHA, BETA, BOTH, B, C, machine

P, Q, R, S = (UUID(int=number) for number in (11, 12, 13, 14))


def test_machines_are_divided_by_weight_and_what_a_quota_cuts_off_goes_to_the_others() -> None:
    assert divided(8.0, {P: 1.0, Q: 1.0, R: 2.0}, {}) == {P: 2.0, Q: 2.0, R: 4.0}
    assert divided(8.0, {P: 1.0, Q: 1.0, R: 2.0}, {R: 1}) == {P: 3.5, Q: 3.5, R: 1.0}


@given(
    st.floats(0, 1000),
    st.dictionaries(st.sampled_from([P, Q, R]), st.floats(0.01, 100), min_size=1),
    st.dictionaries(st.sampled_from([P, Q, R]), st.integers(1, 50)),
)
def test_all_is_divided_unless_quotas_forbid_it(
    amount: float, weights: dict[UUID, float], caps: dict[UUID, int]
) -> None:
    parts = divided(amount, weights, caps)
    most = sum(caps.get(one, amount) for one in weights)
    assert sum(parts.values()) == pytest.approx(min(amount, most))
    assert all(part <= caps.get(one, amount) + 1e-6 for one, part in parts.items())


@given(
    st.dictionaries(st.sampled_from([0, 1, 2]), st.integers(0, 6), min_size=1),
    st.dictionaries(
        st.sampled_from([P, Q, R, S]),
        st.tuples(
            st.sampled_from([0.5, 1.0, 3.0]),
            st.lists(st.tuples(st.frozensets(st.sampled_from([0, 1, 2])), st.integers(0, 9)), max_size=2),
        ),
        min_size=1,
    ),
)
def test_no_taker_can_have_more_unless_one_has_less_that_has_no_more_by_its_weight(
    capacities: dict[int, int], takers: dict[UUID, tuple[float, list[tuple[frozenset[int], int]]]]
) -> None:
    weights = {one: weight for one, (weight, _) in takers.items()}
    uses = {one: [Use(reach, most) for reach, most in wanted] for one, (_, wanted) in takers.items()}
    parts = Division(capacities).entitlements(weights, uses)
    for one in takers:
        beside = Division(capacities)
        for other in takers:
            if other != one and parts[other] / weights[other] <= parts[one] / weights[one] + 1e-6:
                beside.give(other, uses[other], parts[other])
        assert beside.left_for(uses[one]) == pytest.approx(parts[one], abs=1e-4), parts


def test_a_project_that_needs_less_lends_to_one_that_is_short() -> None:
    alpha = replace(ALPHA, project_id=P, project_weight=3.0, has_external_agents=False)
    beta = replace(ALPHA, id=B, name="beta", order=2, project_id=Q, engines_wanted=4)
    machines = (
        machine("m1", *BOTH, job=alpha.id), machine("m2", *BOTH, job=B), machine("m3", *BOTH, job=B),
        machine("m4", *BOTH, job=B), machine("agents", "agent", job=alpha.id, role=Role.AGENT),
    )  # fmt: skip
    assert entitlements(Queue(Snapshot(machines, (alpha, beta)))) == {
        P: Entitlement(entitled=3.0, num_held=2, shared_cost=1, num_agent_slots=1, is_short=False),
        Q: Entitlement(entitled=1.0, num_held=3, shared_cost=3, is_short=True),
    }


def test_a_machine_that_costs_more_counts_more() -> None:
    alpha = replace(ALPHA, project_id=P, has_external_agents=True, engines_wanted=9)
    beta = replace(alpha, id=B, name="beta", order=2, project_id=Q)
    machines = (
        replace(machine("dear", *BOTH, job=alpha.id), cost=4.0), machine("m1", *BOTH, job=B),
        machine("m2", *BOTH, job=B),
    )  # fmt: skip
    queue = Queue(Snapshot(machines, (alpha, beta)))
    told = entitlements(queue)
    assert {one: (each.entitled, each.shared_cost) for one, each in told.items()} == {
        P: (3.0, 4.0),
        Q: (3.0, 2.0),
    }
    assert [(one.held, one.wanted) for one in queue.plan.claims()] == [(2.0, 10.0), (1.0, 8.0)]


def test_a_project_is_entitled_to_no_machine_that_its_jobs_may_not_use() -> None:
    choosy = replace(ALPHA, project_id=P, rollout_tags=frozenset({"few"}), train_tags=frozenset({"few"}))
    also = replace(choosy, id=B, name="beta", order=2, project_id=Q)
    easy = replace(ALPHA, id=C, name="gamma", order=3, project_id=R)
    few = (machine("m0", *BOTH, "few", job=choosy.id), machine("m1", *BOTH, "few", job=B))
    others = tuple(machine(f"m{number}", *BOTH, job=C) for number in range(2, 8))

    def entitled(*jobs: JobView) -> dict[UUID, float]:
        found = entitlements(Queue(Snapshot((*few, *others), jobs)))
        return {project: one.entitled for project, one in found.items()}

    assert entitled(choosy, also, easy) == {P: 1.0, Q: 1.0, R: 6.0}
    assert entitled(choosy, also) == {P: 1.0, Q: 1.0}, "machines that no job may use are in no entitlement"


def test_a_project_is_not_short_for_a_job_that_no_machine_can_serve() -> None:
    impossible = replace(BETA, project_id=P, rollout_tags=frozenset({"gpu=none"}))
    waiting = replace(BETA, project_id=P)
    idle = tuple(machine(f"m{number}", "rollout") for number in range(3))
    busy = machine("m9", *BOTH, job=ALPHA.id)

    def is_short(*jobs: JobView, machines: tuple[MachineView, ...] = (*idle, busy)) -> bool:
        return entitlements(Queue(Snapshot(machines, (replace(ALPHA, project_id=Q), *jobs))))[P].is_short

    assert not is_short(impossible)
    assert is_short(waiting, machines=(busy,))
