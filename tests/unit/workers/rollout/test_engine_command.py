"""What an engine is started with: the job's spec, and the devices that are its own."""

from pathlib import Path
from typing import Any

import pytest

from seamlessflow.core.job_spec import EngineKind, job_spec_parse
from seamlessflow.core.types.devices import Device
from seamlessflow_workers.phases.engine_command import engine_command
from seamlessflow_workers.process.settings import ChildSettings
from tests.fixtures.machine_devices import core_device, gpu

SOCKET = Path("/run/engine.sock")


def command(
    rollout: dict[str, Any],
    *devices: Device,
    weights: Path | None = None,
    memory_fraction: float | None = None,
) -> tuple[str, dict[str, str]]:
    """Return the command line without the program, and the environment."""
    spec = job_spec_parse(
        {
            "name": "j",
            "model": {"source": "/m", "max_model_len": 128},
            "environment": {"name": "external"},
            "rollout": rollout,
        }
    )
    settings = ChildSettings(
        control_plane_url="",
        cores=frozenset({0}),
        device=devices[0].kind,
        devices=devices,
        engine_commands={EngineKind.EMBEDDED: ("embedded",), EngineKind.VLLM: ("vllm",)},
        engines={},
    )
    made = engine_command(
        spec,
        settings,
        devices,
        model="/m",
        socket=SOCKET,
        version=3,
        weights=weights,
        memory_fraction=memory_fraction,
    )
    return " ".join(made.arguments), dict(made.environment)


def test_an_embedded_engine_gets_its_core_and_nothing_of_vllm() -> None:
    line, environment = command({"max_num_seqs": 5}, core_device(1), weights=Path("/w"))
    assert line == (
        "embedded --model /m --uds /run/engine.sock --host 127.0.0.1 --max-model-len 128 --slots 5 --weight-version 3 "
        "--dtype float32 "
        "--device cpu --weights /w"
    )
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    "rollout, devices, flags",
    [
        ({}, [gpu(0)], "--tensor-parallel 1 --pipeline-parallel 1"),
        (
            {"parallel": {"tensor": 2}, "engine_args": {"block_size": 64, "enforce_eager": True}},
            [gpu(0), gpu(1)],
            '--tensor-parallel 2 --pipeline-parallel 1 --engine-args {"block_size":64,"enforce_eager":true}',
        ),
        (
            {"parallel": {"tensor": 2, "pipeline": 1, "expert": True}},
            [core_device(0, 1), core_device(4)],
            "--tensor-parallel 2 --pipeline-parallel 1 --expert-parallel --device-cores 0,1|4",
        ),
    ],
)
def test_vllm_is_told_how_it_is_spread_over_its_devices(
    rollout: dict[str, Any], devices: list[Device], flags: str
) -> None:
    line, environment = command({"engine": "vllm", **rollout}, *devices)
    assert line.endswith(f"--device {devices[0].kind} {flags}")
    if devices[0].kind == "cuda":
        assert environment["CUDA_VISIBLE_DEVICES"] == ",".join(device.id for device in devices)


def test_vllm_is_told_how_much_of_its_gpu_others_leave() -> None:
    line, _ = command({"engine": "vllm"}, gpu(0), memory_fraction=0.9 * 70 / 80)
    assert line.endswith("--pipeline-parallel 1 --gpu-memory-utilization 0.7875")
