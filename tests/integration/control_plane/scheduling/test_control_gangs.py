"""Gangs in the control plane: leases of several machines under one fence, what members are told,
and how gangs end."""

from uuid import UUID

import msgspec

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.leases import plan_apply
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, PhaseState
from seamlessflow.core.protocol.worker import Capabilities, GangOrder, PhaseOrder, PhaseReport
from seamlessflow.core.scheduling.decisions import LeaseGang, Plan
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, Worker, publication_of, worker_make, worker_post
from tests.integration.control_plane.scheduling.test_scheduler_database import (
    activate,
    cycle,
    live,
    ready_groups,
)


def report(order: PhaseOrder, state: PhaseState, reason: str = "") -> PhaseReport:
    return PhaseReport(phase_id=order.phase_id, fence=order.fence, state=state, reason=reason)


def capable(name: str) -> Capabilities:
    return Capabilities(
        num_cores=1, memory_bytes=1, engine_kinds=["embedded"], rendezvous=f"{name}.example:4711"
    )


def cluster() -> dict[str, Worker]:
    workers = {name: worker_make(name, "rollout", "train") for name in ("alpha", "beta")}
    workers["gamma"] = worker_make("gamma", "agent")
    for name, worker in workers.items():
        worker.heartbeat(capabilities=capable(name))
    return workers


def gang_job(cast: Cast) -> Job:
    return cast.job(
        rollout={"groups_per_batch": 2, "group_size": 2},
        train={"num_updates": 2, "keep_versions": 2, "num_machines": 2},
    )


def orders_in_training(cast: Cast) -> tuple[Job, dict[str, Worker], dict[str, PhaseOrder]]:
    """A job whose two machines were just leased to train together, and their orders."""
    workers, job = cluster(), gang_job(cast)
    cycle()
    activate()
    cycle()
    ready_groups(job, 2)
    assert {wake_up.machine for wake_up in cycle()} == {"alpha", "beta"}
    for name in ("alpha", "beta"):
        (order,) = workers[name].heartbeat().orders
        assert order.is_draining
        workers[name].heartbeat(phases=[report(order, PhaseState.ENDED)])
    wake_ups = cycle()
    assert {wake_up.machine for wake_up in wake_ups} == {"alpha", "beta"}
    assert len({wake_up.fence for wake_up in wake_ups}) == 1
    orders = {name: workers[name].heartbeat().orders[0] for name in ("alpha", "beta")}
    job.refresh_from_db()
    return job, workers, orders


def gang_in(order: PhaseOrder) -> GangOrder:
    assert order.gang is not None
    return order.gang


def test_machines_that_handed_over_wait_for_each_other_and_train_under_one_fence(cast: Cast) -> None:
    workers, job = cluster(), gang_job(cast)
    Machine.objects.filter(name="beta").update(last_fence=40)
    cycle()
    activate()
    cycle()
    ready_groups(job, 2)
    cycle()
    assert live() == {"alpha": "rollout draining", "beta": "rollout draining", "gamma": "agent active"}

    (order,) = workers["alpha"].heartbeat().orders
    reply = workers["alpha"].heartbeat(phases=[report(order, PhaseState.ENDED)])
    assert (reply.orders, reply.awaits_gang_of) == ([], job.id), (
        "it is kept for the gang, and not leased alone"
    )
    cycle()
    assert "alpha" not in live()

    (order,) = workers["beta"].heartbeat().orders
    workers["beta"].heartbeat(phases=[report(order, PhaseState.ENDED)])
    cycle()

    phases = Phase.objects.filter(role=Role.TRAIN, state__in=LIVE_PHASE_STATES).order_by("gang_member")
    assert [phase.machine.name for phase in phases] == ["alpha", "beta"]
    assert [phase.num_batches for phase in phases] == [1, 1]
    (gang_id,) = {phase.gang_id for phase in phases}
    (fence,) = {phase.fence for phase in phases}
    assert isinstance(gang_id, UUID)
    assert fence == 42, "above every fence of each machine"
    job.refresh_from_db()
    assert job.train_fence == fence
    assert set(Machine.objects.filter(name__in=["alpha", "beta"]).values_list("last_fence", flat=True)) == {
        42
    }


def test_members_know_one_another_and_only_the_leader_may_publish(cast: Cast) -> None:
    job, _, orders = orders_in_training(cast)
    leads, follows = gang_in(orders["alpha"]), gang_in(orders["beta"])

    assert (leads.member, follows.member) == (0, 1)
    assert leads.machines == follows.machines == ["alpha", "beta"]
    assert leads.address == follows.address == "alpha.example:4711"
    assert leads.gang_id == follows.gang_id
    assert leads.secret == follows.secret
    assert leads.secret.startswith("sfg_")
    assert orders["beta"].credential == ""

    body = msgspec.json.encode(publication_of(job, 1))
    assert worker_post("publications", body, secret=orders["beta"].credential).status_code == 401
    assert worker_post("publications", body, secret=orders["alpha"].credential).status_code == 200


def test_losing_a_machine_ends_the_gang_is_no_failure_and_the_gang_forms_again(cast: Cast) -> None:
    job, workers, orders = orders_in_training(cast)
    for name in ("alpha", "beta"):
        workers[name].heartbeat(phases=[report(orders[name], PhaseState.ACTIVE)])
    workers["beta"].reboot()
    workers["beta"].heartbeat(capabilities=capable("beta"))

    cycle()

    failed = dict(Phase.objects.filter(role=Role.TRAIN).values_list("machine__name", "reason"))
    assert failed["beta"] == "the supervisor of beta was restarted"
    assert failed["alpha"] == "the gang lost a member: the supervisor of beta was restarted"
    assert set(Phase.objects.filter(role=Role.TRAIN).values_list("state", flat=True)) == {"failed"}
    job.refresh_from_db()
    assert job.num_failures == 0
    causes = dict(Phase.objects.filter(role=Role.TRAIN).values_list("machine__name", "failure_cause"))
    assert causes == {"alpha": "gang", "beta": "silence"}
    assert workers["alpha"].heartbeat().orders == []

    cycle()

    assert live()["alpha"] == live()["beta"] == "train leased"
    again = gang_in(workers["beta"].heartbeat().orders[0])
    assert again.gang_id != gang_in(orders["beta"]).gang_id
    assert again.secret != gang_in(orders["beta"]).secret


def test_no_member_is_leased_if_one_machine_was_taken_in_between(cast: Cast) -> None:
    workers, job = cluster(), gang_job(cast)
    cycle()
    activate()
    cycle()
    ready_groups(job, 2)
    cycle()
    for name in ("alpha", "beta"):
        (order,) = workers[name].heartbeat().orders
        workers[name].heartbeat(phases=[report(order, PhaseState.ENDED)])
    plan = decide(snapshot_load())
    assert any(isinstance(decision, LeaseGang) for decision in plan.decisions)
    Machine.objects.filter(name="beta").update(is_cordoned=True)

    assert plan_apply(Plan(plan.decisions, {})) == []

    assert "alpha" not in live()
    job.refresh_from_db()
    assert not Phase.objects.filter(role=Role.TRAIN).exists()


def test_each_machine_rolls_out_again_as_soon_as_its_phase_ends(cast: Cast) -> None:
    _, workers, orders = orders_in_training(cast)
    for name in ("alpha", "beta"):
        workers[name].heartbeat(phases=[report(orders[name], PhaseState.ACTIVE)])

    (back,) = workers["alpha"].heartbeat(phases=[report(orders["alpha"], PhaseState.ENDED)]).orders
    assert back.role is Role.ROLLOUT

    (wake_up,) = cycle()
    assert wake_up.machine == "beta"
    assert workers["beta"].heartbeat().orders[0].is_draining
    (back,) = workers["beta"].heartbeat(phases=[report(orders["beta"], PhaseState.ENDED)]).orders
    assert back.role is Role.ROLLOUT


def test_a_gang_between_bounds_takes_what_is_free_and_leaves_a_checkpoint_for_another(cast: Cast) -> None:
    tags = {"alpha": "rollout", "beta": "train", "delta": "train", "gamma": "agent"}
    workers = {name: worker_make(name, tag) for name, tag in tags.items()}
    for name, worker in workers.items():
        worker.heartbeat(capabilities=capable(name))
    cast.job(
        rollout={"groups_per_batch": 2, "group_size": 2},
        train={"num_updates": 2, "keep_versions": 2, "num_machines": {"min": 1, "max": 3}},
    )
    cycle()
    activate()
    cycle()
    orders = [workers[name].heartbeat().orders[0] for name in ("beta", "delta")]
    assert [gang_in(order).machines for order in orders] == [["beta", "delta"]] * 2
    assert all(order.leaves_checkpoint for order in orders)

    Machine.objects.filter(name="delta").update(is_cordoned=True)
    for name, order in zip(("beta", "delta"), orders, strict=True):
        workers[name].heartbeat(phases=[report(order, PhaseState.ENDED)])
    cycle()
    (order,) = workers["beta"].heartbeat().orders
    assert gang_in(order).machines == ["beta"]
    assert workers["delta"].heartbeat().orders == []
