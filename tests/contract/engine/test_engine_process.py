"""The engine as its supervisor starts it: arguments, ready line, sockets, signals, exit codes, its parent's death."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import pytest

from seamlessflow.core.protocol.child import EXIT_INPUT_FAULT, INPUT_FAULT_MARK
from tests.contract.engine.conftest import Kind
from tests.fixtures.engine_processes import assert_ended, parent_of, post, refusal_of
from tests.fixtures.repository import ROOT

COMMAND = (sys.executable, "-m", "seamlessflow_workers.rollout.engine")
DEADLINE_S = 60.0


def _environment() -> dict[str, str]:
    paths = os.pathsep.join(str(ROOT / part) for part in ("platform", "workers"))
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


@contextmanager
def started(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running engine process and its ready line."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
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
        body = {"token_ids": [20, 21], "sampling_params": {"max_tokens": 3, "ignore_eos": True}}
        answer = post(uds, "/inference/v1/generate", body)
        assert answer["choices"][0]["weight_versions"] == [{"version": "12", "start": 0, "end": 3}]

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


@pytest.mark.parametrize(
    "flaw,status",
    [
        *(("absent", 2), ("empty", 2), ("weights", 2), ("device", 2)),
        *(("length", EXIT_INPUT_FAULT), ("config", EXIT_INPUT_FAULT), ("truncated", EXIT_INPUT_FAULT)),
    ],
)
def test_model_that_cannot_be_served_is_one_line_and_a_status_that_says_whether_another_machine_could(
    models: Any, tmp_path: Path, flaw: str, status: int
) -> None:
    folder = {"absent": tmp_path / "nowhere", "empty": tmp_path}.get(flaw, models.folder(Kind.QWEN3_TIED))
    if flaw == "config":
        folder = tmp_path
        (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    elif flaw == "truncated":
        folder = Path(shutil.copytree(folder, tmp_path / "model"))
        with (folder / "model.safetensors").open("r+b") as file:
            file.truncate(file.seek(0, os.SEEK_END) - 4)
    further = {
        "device": ["--device", "cuda:77"],
        "weights": ["--weights", str(tmp_path)],
        "length": ["--max-model-len", "100000"],
    }.get(flaw, [])

    command = [*COMMAND, "--model", str(folder), "--uds", str(tmp_path / "e.sock"), *further]
    result = refusal_of(command, environ=_environment(), timeout_s=DEADLINE_S)

    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stderr.startswith("seamlessflow-engine: " if status == 2 else f"{INPUT_FAULT_MARK}{folder}")


def test_dies_with_its_parent(models: Any, tmp_path: Path) -> None:
    model, uds = models.folder(Kind.QWEN3_TIED), tmp_path / "e.sock"
    command = [*COMMAND, "--model", str(model), "--uds", str(uds)]
    with parent_of(command, environ=_environment()) as (parent, engine):
        parent.kill()
    assert_ended([engine])


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
        memory = psutil.Process(process.pid).memory_info
        before = memory().vms
        post(uds, "/sleep?level=1", {})
        asleep = memory().vms
        post(uds, "/wake_up", {})

        # Answering a request takes a little memory of its own.
        assert before - asleep >= 0.98 * cache_bytes
        assert memory().vms - asleep >= 0.98 * cache_bytes
