"""The engine as its supervisor starts it: arguments, ready line, sockets, signals, exit codes, its parent's death."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any

import psutil
import pytest

from tests.contract.engine.conftest import Kind

ROOT = Path(__file__).parents[3]
MODULE = "seamlessflow_workers.rollout.engine"
DEADLINE_S = 60.0


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "workers"), "OMP_NUM_THREADS": "1"}


@contextmanager
def started(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running engine process and its ready line."""
    process = subprocess.Popen(
        [sys.executable, "-m", MODULE, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(),
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket(AF_UNIX)
        self.sock.connect(str(self._path))


def _post(connection: HTTPConnection, path: str, body: Any) -> Any:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content
    return json.loads(content)


def test_serves_on_a_unix_socket_over_a_stale_file_and_leaves_at_once_on_sigterm(
    models: Any, tmp_path: Path
) -> None:
    uds = tmp_path / "engine.sock"
    uds.touch()
    weights = models.weights(Kind.QWEN3_TIED, 2)
    arguments = (
        "--model",
        models.folder(Kind.QWEN3_TIED),
        "--uds",
        uds,
        "--max-model-len",
        "512",
        "--slots",
        "4",
    )

    with started(*arguments, "--weights", weights, "--weight-version", "12") as (process, line):
        assert line == "ready"
        connection = _UnixConnection(uds)
        body = {"token_ids": [20, 21], "sampling_params": {"max_tokens": 3, "ignore_eos": True}}
        answer = _post(connection, "/inference/v1/generate", body)
        assert answer["choices"][0]["weight_versions"] == [{"version": "12", "start": 0, "end": 3}]
        connection.close()

        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=2) == 0


def test_tells_a_port_that_it_picked_itself(models: Any) -> None:
    arguments = (
        "--model",
        models.folder(Kind.LLAMA_UNTIED),
        "--port",
        "0",
        "--max-model-len",
        "64",
        "--slots",
        "2",
    )

    with started(*arguments) as (_, line):
        word, port = line.split()
        assert word == "ready"
        connection = HTTPConnection("127.0.0.1", int(port), timeout=DEADLINE_S)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.parametrize("flaw", ["absent", "empty", "weights", "length", "device", "config"])
def test_model_that_cannot_be_served_is_status_2_and_one_line(models: Any, tmp_path: Path, flaw: str) -> None:
    folder = {"absent": tmp_path / "nowhere", "empty": tmp_path}.get(flaw, models.folder(Kind.QWEN3_TIED))
    if flaw == "config":
        folder = tmp_path
        (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    further = {
        "device": ["--device", "cuda:77"],
        "weights": ["--weights", str(tmp_path)],
        "length": ["--max-model-len", "100000"],
    }.get(flaw, [])

    result = subprocess.run(
        [sys.executable, "-m", MODULE, "--model", folder, "--uds", tmp_path / "e.sock", *further],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=_environment(),
        check=False,
    )

    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stderr.startswith("seamlessflow-engine: ")


def test_dies_with_its_parent(models: Any, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        MODULE,
        "--model",
        models.folder(Kind.QWEN3_TIED),
        "--uds",
        tmp_path / "e.sock",
    ]
    script = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen({[str(part) for part in command]!r}, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(),
    )
    with parent:
        assert parent.stdout is not None
        engine = psutil.Process(int(parent.stdout.readline()))
        parent.kill()

    deadline = time.monotonic() + DEADLINE_S
    while engine.is_running() and engine.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the engine outlived its parent"
        time.sleep(0.02)


def test_sleep_gives_the_memory_of_the_cache_back(models: Any, tmp_path: Path) -> None:
    uds = tmp_path / "e.sock"
    arguments = (
        "--model",
        models.folder(Kind.QWEN3_TIED),
        "--uds",
        uds,
        "--max-model-len",
        "4096",
        "--slots",
        "256",
    )
    cache_bytes = (
        2 * 2 * 256 * 2 * 4096 * 16 * 4
    )  # layers, keys and values, slots, heads, positions, width, float32

    with started(*arguments) as (process, line):
        assert line == "ready"
        connection, memory = _UnixConnection(uds), psutil.Process(process.pid).memory_info
        before = memory().vms
        _post(connection, "/sleep?level=1", {})
        asleep = memory().vms
        _post(connection, "/wake_up", {})
        connection.close()

        assert before - asleep >= cache_bytes
        assert memory().vms - asleep >= cache_bytes
