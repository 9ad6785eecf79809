"""What this machine is, found without importing anything heavy: cores, memory, accelerators, software."""

import importlib.metadata
import os
import platform
from pathlib import Path

from seamlessflow.core.job_spec import EngineKind
from seamlessflow.core.protocol.worker import Capabilities

REPORTED_PACKAGES = ("seamlessflow", "torch", "transformers", "deepspeed", "vllm")
NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")
ENGINE_KINDS = (EngineKind.EMBEDDED,)


def machine_capabilities(cores: frozenset[int]) -> Capabilities:
    return Capabilities(
        num_cores=len(cores),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        accelerators=_accelerators(),
        engine_kinds=[str(kind) for kind in ENGINE_KINDS],
        software={"python": platform.python_version(), **_package_versions()},
    )


def default_device() -> str:
    return "cuda" if _accelerators() else "cpu"


def _accelerators() -> list[str]:
    if not NVIDIA_DEVICES.is_dir():
        return []
    return [_model_name(folder / "information") for folder in sorted(NVIDIA_DEVICES.iterdir())]


def _model_name(information: Path) -> str:
    for line in information.read_text(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "Model":
            return value.strip()
    return "NVIDIA device"


def _package_versions() -> dict[str, str]:
    versions = {}
    for name in REPORTED_PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # not installed here: absent from the report
    return versions
