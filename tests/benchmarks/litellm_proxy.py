"""LiteLLM's proxy as a baseline of the gateway: what users put between agents and an engine today.

It runs in its own environment (`peers_environment`), in one worker process, without a database, and
passes chat completions to an engine that speaks OpenAI's API. It records nothing.
"""

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from deploy.local.peers_environment import LITELLM, ensure
from seamlessflow.cli.local.identity import same_identity, wrapped
from tests.benchmarks.measuring import DEATH_SIGNAL, STOP_TIMEOUT_S, Program

MODEL = "canned"
KEY = "sk-benchmark-of-the-gateway-0123456789abcdef"
START_TIMEOUT_S = 120.0
POLL_S = 0.2


def litellm_version() -> str:
    """Return the version that the benchmark compares with."""
    lines = LITELLM.lock.read_text(encoding="utf-8").splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith("litellm=="))


@contextmanager
def litellm_running(engine_url: str, *, folder: Path) -> Iterator[Program]:
    """Run the proxy in front of an engine. It dies with this process."""
    python, port, config = ensure(LITELLM), _free_port(), folder / "litellm.json"
    model = {"model": f"openai/{MODEL}", "api_base": f"{engine_url}/v1", "api_key": "none"}
    config.write_bytes(msgspec.json.encode({"model_list": [{"model_name": MODEL, "litellm_params": model}]}))
    command = (
        *(str(python.with_name("litellm")), "--config", str(config), "--host", "127.0.0.1"),
        *("--port", str(port), "--num_workers", "1", "--telemetry", "False"),
    )
    environ = {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    with (folder / "litellm.log").open("wb") as log:
        process = subprocess.Popen(
            wrapped(command, identity=same_identity(), death_signal=DEATH_SIGNAL),
            env=os.environ | environ,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_ready(process, port, log=folder / "litellm.log")
        yield Program(process.pid, f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


def _wait_ready(process: "subprocess.Popen[bytes]", port: int, *, log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5):
                return
        except (urllib.error.URLError, TimeoutError):
            time.sleep(POLL_S)
    raise RuntimeError(f"LiteLLM's proxy did not start: {log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
