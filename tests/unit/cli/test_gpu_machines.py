"""Which machines `up` makes of the GPUs that it finds, and what it says of them."""

from pathlib import Path

import click
import pytest

from seamlessflow.cli import platform
from seamlessflow.cli.errors import CliError
from seamlessflow.cli.local import gpu_machines
from seamlessflow.cli.local.environment import Addresses
from seamlessflow.cli.local.gpu_machines import NODE, gpus_here, placed, placement_line
from seamlessflow.cli.local.layouts import LAYOUTS
from seamlessflow.cli.local.machines import supervisor_spec
from seamlessflow.cli.local.state import Home
from seamlessflow.core.types.devices import Device
from seamlessflow_workers.supervisor import inventory
from tests.fixtures.machine_devices import gpu

GPUS = tuple(gpu(number) for number in range(8))


def devices(layout: str, gpus: tuple[Device, ...]) -> dict[str, str | None]:
    return {machine.name: machine.devices for machine in placed(LAYOUTS[layout], gpus, cores={0, 1, 2})}


def ids(*numbers: int) -> str:
    return ",".join(gpu(number).id for number in numbers)


def test_one_machine_has_all_gpus_and_agents_have_none() -> None:
    alpha, gamma = placed(NODE, GPUS, cores={0, 1})
    assert (alpha.tags, alpha.devices) == (("rollout", "train"), ids(*range(8)))
    assert (gamma.tags, gamma.devices) == (("agent",), "cpu:0-1")


def test_machines_of_a_layout_get_equal_parts() -> None:
    assert devices("disaggregated", GPUS) == {
        "alpha": ids(0, 1, 2, 3),
        "beta": ids(4, 5, 6, 7),
        "gamma": "cpu:0-2",
    }
    assert devices("colocated", GPUS[:3])["beta"] == ids(1, 2)


def test_one_gpu_is_shared_and_without_any_nothing_changes() -> None:
    assert devices("multiplexed", GPUS[:1]) == {"alpha": ids(0), "beta": ids(0), "gamma": "cpu:0-2"}
    assert placed(LAYOUTS["multiplexed"], (), cores={0}) == LAYOUTS["multiplexed"]


def test_up_says_what_it_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(gpu_machines, "visible_gpus", lambda environ: GPUS[:2])
    monkeypatch.setattr(click, "echo", said.append)

    chosen = platform._machines(None)

    assert [machine.name for machine in chosen] == ["alpha", "gamma"]
    assert said == [
        "gpus       2 found (h100): alpha {rollout, train} on GPUs 0, 1; gamma {agent} on the processor"
    ]
    assert placement_line(placed(LAYOUTS["disaggregated"], GPUS[:2], cores={0}), GPUS[:2]).endswith(
        "alpha {train} on GPU 0; beta {rollout} on GPU 1; gamma {agent} on the processor"
    )


def test_a_host_without_gpus_keeps_the_usual_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_machines, "visible_gpus", lambda environ: ())
    monkeypatch.setattr(click, "echo", pytest.fail)
    assert platform._machines(None) == LAYOUTS["multiplexed"]


def test_machines_told_to_use_the_processor_get_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_machines, "visible_gpus", lambda environ: GPUS)
    assert gpus_here({"SEAMLESSFLOW_DEVICE": "cpu"}) == ()
    assert gpus_here({}) == GPUS


def test_visible_gpus_that_do_not_exist_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "find_gpus", lambda: GPUS)
    with pytest.raises(CliError, match="CUDA_VISIBLE_DEVICES '9': there is no GPU 9"):
        gpus_here({"CUDA_VISIBLE_DEVICES": "9"})


def test_a_supervisor_is_told_its_devices_and_their_kind_whatever_the_environment_says(
    tmp_path: Path,
) -> None:
    addresses = Addresses(web_url="http://127.0.0.1:1", gateway_url="http://127.0.0.1:2")
    commands = [
        supervisor_spec(Home(tmp_path), machine, addresses=addresses, env={}).command
        for machine in placed(NODE, GPUS[:1], cores={0})
    ]
    flags = [command[command.index("--devices") :][:4] for command in commands]
    assert flags == [
        ("--devices", ids(0), "--device", "cuda"),
        ("--devices", "cpu:0", "--device", "cpu"),
    ]
