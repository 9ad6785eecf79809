"""One machine of two devices: two engines while it rolls out, a trainer of two ranks while it trains.

An engine is killed in the middle: its turns go on at the other, and the phase goes on.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.client import Client
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds, wait_for_version
from tests.acceptance.platform_process import PlatformProcess, eventually, kill_hard, new_platform

ENGINE = "seamlessflow_workers.rollout.engine"
pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="the devices of the machine are two cores"
)


def phases_of(client: Client, job_id: str, role: str) -> list[dict[str, Any]]:
    phases = client.job_part(job_id, "phases", limit=200)["results"]
    return [phase for phase in phases if phase["role"] == role]


def events_of(client: Client, job_id: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in client.job_part(job_id, "events")["results"] if event["kind"] == kind]


def test_a_killed_engine_of_two_costs_its_turns_a_hand_over_and_no_phase(
    model_root: Path, tmp_path: Path
) -> None:
    spec = calculator_spec(model_root, num_updates=10_000, num_ranks=2)
    spec["rollout"]["max_num_seqs"] = 4  # both engines are busy
    with new_platform(tmp_path, model_root=model_root) as node:
        node.start("--layout", "node")
        with node.client() as client:
            job_id = client.job_submit(spec)["id"]
            wait_for_version(client, job_id, 2)

            lost = eventually(lambda: loss_of_an_engine(node, client, job_id), timeout_s=60, what="a loss")
            assert "was killed by SIGKILL" in lost[0]["reason"]
            version = client.job_get(job_id)["latest_version"]
            wait_for_version(client, job_id, version + 2)
            eventually(lambda: len(node.find(ENGINE)) == 2, timeout_s=30, what="the other engine")

            assert client.job_part(job_id, "summary")["num_turns_handed_over"] > 0
            for role in ("rollout", "train"):
                assert not [phase for phase in phases_of(client, job_id, role) if phase["state"] == "failed"]
            client.job_edit(job_id, "cancel", reason="seen enough")
            eventually(
                lambda: client.job_get(job_id)["state"] == "cancelled",
                timeout_s=60,
                what="the job is cancelled",
            )
            assert_audit_holds(client, job_id)


def loss_of_an_engine(node: PlatformProcess, client: Client, job_id: str) -> list[dict[str, Any]]:
    """Kill an engine if both of a phase serve now, and return the loss once it is an event.

    If the phase is drained just then, its engine restarts without one, and another is killed later.
    """
    live = [phase for phase in phases_of(client, job_id, "rollout") if phase["state"] == "active"]
    engines = node.find(ENGINE)
    if len(engines) == 2 and live and [engine["problem"] for engine in live[0]["engines"]] == ["", ""]:
        kill_hard(engines[:1])
    return events_of(client, job_id, "engine.lost")
