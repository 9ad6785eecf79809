"""What machines say of their hardware, and that nobody says it for them."""

from typing import Any

import msgspec
import pytest

from seamlessflow.core.protocol.worker import Capabilities
from seamlessflow.core.types.labels import gpu_model, hardware_of, is_label, labels_of
from seamlessflow.core.types.tags import InvalidTag, parse_tags
from tests.fixtures.machine_devices import core_device, gpu


def reported(**capabilities: Any) -> dict[str, Any]:
    said = Capabilities(num_cores=1, memory_bytes=1, **capabilities)
    return dict(msgspec.to_builtins(said))


@pytest.mark.parametrize(
    "name,model",
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 NVL", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA device", "device"),
    ],
)
def test_a_gpu_has_the_short_name_that_people_use(name: str, model: str) -> None:
    assert gpu_model(name) == model


def test_a_machine_is_labelled_by_its_gpus_and_its_host() -> None:
    said = reported(host="Node_7.example", devices=[gpu(number) for number in range(8)])
    assert labels_of(said) == {"gpu=h100", "gpus=8", "host=node_7.example"}
    assert hardware_of(labels_of(said)) == {"gpu=h100", "gpus=8"}


def test_gpus_that_are_cordoned_do_not_count() -> None:
    devices = [gpu(0), gpu(1)]
    assert "gpus=1" in labels_of(reported(devices=devices, device_problems={devices[1].id: "it is lost"}))
    both = {device.id: "it is lost" for device in devices}
    assert labels_of(reported(devices=devices, device_problems=both)) == set()


def test_core_sets_are_no_gpus_and_older_supervisors_say_nothing() -> None:
    assert labels_of(reported(host="here", devices=[core_device(0)])) == {"host=here"}
    assert labels_of({}) == labels_of({"num_cores": 4}) == set()


@pytest.mark.parametrize("label", ["gpu=h100", "gpus=8", "host=x"])
def test_a_label_is_no_tag(label: str) -> None:
    assert is_label(label)
    with pytest.raises(InvalidTag, match=f"tag '{label}' cannot be given: gpu, gpus, host are labels"):
        parse_tags(["rollout", label])


def test_names_that_only_begin_like_a_label_are_tags() -> None:
    assert parse_tags(["gpu", "gpu-h100", "hosts=2"]) == {"gpu", "gpu-h100", "hosts=2"}
