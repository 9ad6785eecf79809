"""Two machines that also roll out train together in turns, through kills and retags; nothing is lost
or duplicated. A gang between bounds goes on with what is left."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from seamlessflow.client import Client
from tests.acceptance.conftest import calculator_spec
from tests.acceptance.job_watching import assert_audit_holds, wait_for_version
from tests.acceptance.platform_process import PlatformProcess, eventually, kill_hard
from tests.acceptance.steering import rest_tags_set

NUM_UPDATES = 7  # what is done to a gang has to come before its end
NUM_CALM_UPDATES = 4  # nothing is done to it
MANY_UPDATES = 10_000  # more than come to an end
BOTH = ["rollout", "train"]
Victims = Callable[[PlatformProcess], list[psutil.Process]]

VICTIMS: dict[str, Victims] = {
    "trainer that leads": lambda p: p.find("seamlessflow_workers.train", under="--name alpha"),
    "supervisor of the one that follows": lambda p: p.find("seamlessflow_workers.supervisor", "--name beta"),
}


@pytest.fixture(autouse=True)
def two_that_train(platform: PlatformProcess) -> Iterator[None]:
    rest_tags_set(platform, "beta", BOTH, reason="trains with alpha")
    yield
    rest_tags_set(platform, "beta", ["rollout"], reason="the test is over")


@pytest.fixture
def gamma_rolls_out(platform: PlatformProcess) -> Iterator[None]:
    rest_tags_set(platform, "gamma", ["agent", "rollout"], reason="has an engine beside the agents")
    yield
    rest_tags_set(platform, "gamma", ["agent"], reason="the test is over")


def gang_spec(model_root: Path, *, num_updates: int = NUM_UPDATES) -> dict[str, Any]:
    return calculator_spec(model_root, num_updates=num_updates, num_machines=2, zero_stage=2)


def gangs_of(client: Client, job_id: str) -> dict[int, list[dict[str, Any]]]:
    """Return train phases by their fence, which the members of a gang share."""
    gangs = defaultdict(list)
    for phase in client.job_part(job_id, "phases", limit=200)["results"]:
        if phase["role"] == "train":
            gangs[phase["fence"]].append(phase)
    return gangs


def sizes_of(client: Client, job_id: str, *, after: int = 0) -> Counter[int]:
    """Return how many gangs had each number of machines, of those whose fence is above `after`."""
    return Counter(len(members) for fence, members in gangs_of(client, job_id).items() if fence > after)


def seconds_of(client: Client, job_id: str) -> dict[str, Counter[str]]:
    """Return, by machine, the seconds that it spent on the job in each state and with each cause of
    idle time."""
    seconds: dict[str, Counter[str]] = {}
    for machine in client.job_part(job_id, "ledger")["machines"]:
        counted = seconds[machine["name"]] = Counter()
        for total in machine["totals"]:
            counted[total["cause"] if total["state"] == "idle" else total["state"]] += total["duration_s"]
    return seconds


def test_two_machines_that_roll_out_train_together_in_turns(
    platform: PlatformProcess, model_root: Path
) -> None:
    with platform.client() as client:
        job_id = client.job_submit(gang_spec(model_root, num_updates=NUM_CALM_UPDATES))["id"]
        job = client.job_wait(job_id)
        assert job["latest_version"] == NUM_CALM_UPDATES, job["state_reason"]
        assert_audit_holds(client, job_id)
        gangs = gangs_of(client, job_id)
        assert gangs
        for members in gangs.values():
            assert sorted((phase["machine"], phase["gang_member"]) for phase in members) == [
                ("alpha", 0),
                ("beta", 1),
            ]
        seconds = seconds_of(client, job_id)
        print(seconds)
        for name in ("alpha", "beta"):
            assert seconds[name]["training"] > 0
            assert seconds[name]["serving"] > 0
            assert seconds[name]["awaiting_gang"] > 0


@pytest.mark.parametrize("victim", VICTIMS)
def test_the_gang_forms_again_and_nothing_is_lost_after_kill_9_of_the(
    victim: str, platform: PlatformProcess, model_root: Path
) -> None:
    with platform.client() as client:
        job_id = client.job_submit(gang_spec(model_root))["id"]
        wait_for_version(client, job_id, 2)

        kill_hard(VICTIMS[victim](platform))

        job = client.job_wait(job_id)
        assert job["latest_version"] == NUM_UPDATES, job["state_reason"]
        assert_audit_holds(client, job_id)


def test_retagging_a_member_ends_the_gang_and_undoing_it_brings_the_gang_back(
    platform: PlatformProcess, model_root: Path
) -> None:
    with platform.client() as client:
        job_id = client.job_submit(gang_spec(model_root))["id"]
        wait_for_version(client, job_id, 2)

        rest_tags_set(platform, "beta", ["rollout"], reason="it shall not train")

        def waits() -> bool:
            return (
                "2 machines must train together, but 1 can (alpha)"
                in client.job_get(job_id)["waiting_reason"]
            )

        eventually(waits, timeout_s=60, what="a reason that names what is missing")
        eventually(
            lambda: all(
                phase["ended_at"] for members in gangs_of(client, job_id).values() for phase in members
            ),
            timeout_s=60,
            what="the end of the gang",
        )
        rest_tags_set(platform, "beta", BOTH, reason="it shall train again")

        job = client.job_wait(job_id)
        assert job["latest_version"] == NUM_UPDATES, job["state_reason"]
        assert_audit_holds(client, job_id)
        states = Counter(phase["state"] for members in gangs_of(client, job_id).values() for phase in members)
        assert set(states) == {"ended"}, states


@pytest.mark.usefixtures("gamma_rolls_out")
def test_a_gang_between_bounds_trains_on_what_is_left_and_grows_again(
    platform: PlatformProcess, model_root: Path
) -> None:
    """One machine rolls out all turns of the job, so nobody needs the other two when a turn to train begins."""
    with platform.client() as client:
        spec = gang_spec(model_root, num_updates=MANY_UPDATES)
        spec["train"]["num_machines"] = {"min": 1, "max": 2}
        job_id = client.job_submit(spec)["id"]
        eventually(lambda: sizes_of(client, job_id)[2], timeout_s=120, what="a gang of two")

        rest_tags_set(platform, "beta", ["rollout"], reason="it shall not train")
        fence = max(gangs_of(client, job_id))
        eventually(lambda: sizes_of(client, job_id, after=fence)[1], timeout_s=120, what="a gang of one")
        wait_for_version(client, job_id, client.job_get(job_id)["latest_version"] + 2)
        rest_tags_set(platform, "beta", BOTH, reason="it shall train again")
        fence = max(gangs_of(client, job_id))
        eventually(lambda: sizes_of(client, job_id, after=fence)[2], timeout_s=120, what="two again")
        wait_for_version(client, job_id, client.job_get(job_id)["latest_version"] + 2)

        client.job_edit(job_id, "cancel", reason="seen")
        eventually(lambda: client.job_get(job_id)["ended_at"], timeout_s=60, what="the end of the job")
        assert_audit_holds(client, job_id)
        states = Counter(phase["state"] for members in gangs_of(client, job_id).values() for phase in members)
        assert set(states) == {"ended"}, states
