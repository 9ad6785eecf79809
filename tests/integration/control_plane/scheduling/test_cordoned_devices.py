"""Devices that their machines cordon, with PostgreSQL: labels, placement, events, and releases by people."""

from typing import Any

import orjson
import pytest

from seamlessflow.control_plane.cluster.models import PoolGrant
from seamlessflow.control_plane.cluster.services.device_cordons import device_release
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.common.models import Event
from seamlessflow.core.protocol.worker import Capabilities
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast, Worker, worker_make
from tests.fixtures.machine_devices import gpu
from tests.integration.control_plane.scheduling.test_scheduler_database import cycle

GPUS = [gpu(0), gpu(1)]
LOST = {GPUS[1].id: "the driver reports: GPU is lost"}


def told(worker: Worker, problems: dict[str, str] | None = None, **more: Any) -> Any:
    said = Capabilities(
        host="node-7",
        devices=GPUS,
        device_problems=problems or {},
        num_cores=1,
        memory_bytes=1,
        agent_slots=2,
        **{"engine_kinds": ["embedded"], **more},
    )
    return worker.heartbeat(capabilities=said)


def kinds() -> list[str]:
    events = Event.objects.filter(kind__startswith="machine.device_").order_by("id")
    return [event.kind.removeprefix("machine.device_") for event in events]


def test_jobs_are_placed_by_labels_and_told_which_one_a_machine_lacks(cast: Cast) -> None:
    node, plain = (
        worker_make("node", "rollout", "train", "agent"),
        worker_make("plain", "rollout", "train", "agent"),
    )
    told(node)
    plain.heartbeat(capabilities=Capabilities(num_cores=1, memory_bytes=1, agent_slots=2))
    hopper = ["gpu=h100", "gpus=2"]
    fits = cast.job(placement={"rollout": hopper, "train": hopper, "agent": ["host=node-7"]})
    waits = cast.job(placement={"rollout": ["gpu=b200"]})
    for _ in range(2):
        cycle()

    fits.refresh_from_db()
    waits.refresh_from_db()
    assert {phase.machine.name for phase in fits.phases.select_related("machine")} == {"node"}
    assert "no machine has the tags for role rollout: gpu=b200, rollout" in waits.waiting_reason


def test_a_device_that_is_lost_leaves_the_labels_and_an_event_with_its_reason(cast: Cast) -> None:
    node = worker_make("node", "rollout", "train")
    told(node)
    told(node, LOST)
    told(node, LOST)

    assert kinds() == ["cordoned"]
    event = Event.objects.get(kind="machine.device_cordoned")
    assert (event.reason, event.author) == (LOST[GPUS[1].id], "machine:node")
    assert event.data["device"] == GPUS[1].id
    path = f"machines/{show_id(IdKind.MACHINE, node.machine.id)}"
    shown = orjson.loads(cast.owner.call("GET", path).content)
    assert shown["labels"] == ["gpu=h100", "gpus=1", "host=node-7"]
    assert shown["heartbeat"]["capabilities"]["device_problems"] == LOST


def test_a_machine_without_a_device_gets_no_work_and_the_reason_says_so(cast: Cast) -> None:
    node = worker_make("node", "rollout", "train", "agent")
    told(node, {device.id: "it is lost" for device in GPUS})
    job = cast.job()
    cycle()
    job.refresh_from_db()
    assert "every device of node is cordoned" in job.waiting_reason


def test_ranks_need_as_many_gpus_as_work(cast: Cast) -> None:
    node = worker_make("node", "rollout", "train", "agent")
    told(node, LOST)
    job = cast.job(train={"num_ranks": 2})
    cycle()
    job.refresh_from_db()
    assert "node has 1 working GPU, but the job trains with 2 processes on each machine" in job.waiting_reason


def test_a_person_releases_a_device_and_its_machine_is_told_until_it_has_tried(cast: Cast) -> None:
    node = worker_make("node", "rollout", "train")
    told(node)
    told(node, LOST)
    by: dict[str, Any] = {"machine_id": node.machine.id, "device_id": GPUS[1].id, "author": "user:ada"}
    with pytest.raises(ApplicationError, match="say why"):
        device_release(**by, reason=" ")
    device_release(**by, reason="a new card")

    assert node.heartbeat().released_devices == LOST
    assert node.heartbeat().released_devices == LOST
    assert told(node).released_devices == {}
    assert kinds() == ["cordoned", "released", "admitted"]
    with pytest.raises(ApplicationError, match=f"{GPUS[1].id} is not cordoned"):
        device_release(**by, reason="again")


def test_a_release_does_not_outlive_the_problem_that_it_forgave(cast: Cast) -> None:
    node = worker_make("node", "rollout", "train")
    told(node)
    told(node, LOST)
    device_release(machine_id=node.machine.id, device_id=GPUS[1].id, author="user:ada", reason="a new card")
    assert (
        told(node, {GPUS[1].id: "its memory had 2 errors that it could not correct"}).released_devices == {}
    )
    assert kinds() == ["cordoned", "released", "cordoned"]


def test_operators_release_devices_over_rest_and_labels_are_no_tags(cast: Cast) -> None:
    node = worker_make("node", "rollout", "train")
    told(node, LOST)
    path = f"machines/{show_id(IdKind.MACHINE, node.machine.id)}"
    body = {"reason": "a new card", "device": GPUS[1].id}
    assert cast.owner.call("POST", f"{path}/release", body).status_code == 403
    assert cast.operator.call("POST", f"{path}/release", {**body, "device": "GPU-x"}).status_code == 409
    assert cast.operator.call("POST", f"{path}/release", body).status_code == 200
    assert kinds() == ["cordoned", "released"]

    edit = {"tags": ["rollout", "gpu=b200"], "reason": "better"}
    answer = cast.operator.call("PATCH", path, edit, **{"If-Match": '"1"'})
    assert answer.status_code == 400
    assert "gpu, gpus, host are labels" in orjson.loads(answer.content)["errors"][0]["detail"]


def test_defaults_of_a_job_follow_the_machines_of_its_project(cast: Cast) -> None:
    assert cast.job().resolved_spec.rollout.engine == "embedded"
    told(worker_make("node", "rollout", "train"), engine_kinds=["embedded", "vllm"])

    job = cast.job()

    assert (job.resolved_spec.rollout.engine, job.resolved_spec.model.dtype) == ("vllm", "bfloat16")
    assert job.spec["rollout"]["engine"] == "vllm"
    assert "rollout" not in job.spec_submitted
    PoolGrant.objects.create(pool="default", project=cast.outsider.project)
    assert cast.job().resolved_spec.model.dtype == "float32", "its project may not use that machine any more"
