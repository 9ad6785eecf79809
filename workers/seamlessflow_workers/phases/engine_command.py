"""The command line with which an engine is started, by the job's spec and the engine's devices."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from seamlessflow.core.job_spec import EngineKind, JobSpec
from seamlessflow.core.types.devices import Device
from seamlessflow_workers.process.child import ChildCommand
from seamlessflow_workers.process.device_environment import devices_environment
from seamlessflow_workers.process.settings import ChildSettings


def engine_command(
    spec: JobSpec,
    settings: ChildSettings,
    devices: Sequence[Device],
    *,
    model: str,
    socket: Path,
    version: int,
    weights: Path | None,
    memory_fraction: float | None = None,
) -> ChildCommand:
    """`version`: of the weights in the folder `weights`, or 0 for the model's own. `memory_fraction`: of each device,
    for an engine that takes all it is given."""
    kind = spec.rollout.engine
    return ChildCommand(
        (
            *settings.engine_commands[kind],
            # No --seed: engines of one job must not draw the same numbers, nor a restarted engine repeat itself.
            *("--model", model, "--uds", str(socket), "--host", settings.listen_host),
            *("--max-model-len", str(spec.model.max_model_len), "--slots", str(spec.rollout.max_num_seqs)),
            *("--weight-version", str(version)),
            *("--dtype", str(spec.model.dtype), "--device", settings.device),
            *(("--weights", str(weights)) if weights is not None else ()),
            *(_vllm_flags(spec, devices, memory_fraction) if kind is EngineKind.VLLM else ()),
        ),
        devices_environment(devices),
    )


def _vllm_flags(spec: JobSpec, devices: Sequence[Device], memory_fraction: float | None) -> Iterator[str]:
    parallel = spec.rollout.parallel
    yield from ("--tensor-parallel", str(parallel.tensor), "--pipeline-parallel", str(parallel.pipeline))
    if parallel.expert:
        yield "--expert-parallel"
    if memory_fraction is not None:
        yield from ("--gpu-memory-utilization", f"{memory_fraction:.4f}")
    if len(devices) > 1 and all(device.kind == "cpu" for device in devices):
        yield from ("--device-cores", "|".join(_shown_cores(device) for device in devices))
    if spec.rollout.engine_args:
        yield from ("--engine-args", msgspec.json.encode(spec.rollout.engine_args).decode())


def _shown_cores(device: Device) -> str:
    return ",".join(map(str, device.cores))
