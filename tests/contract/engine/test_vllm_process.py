"""The vLLM engine as its supervisor starts it: sockets, other weights than the model's own, exit codes, its death."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any

import numpy as np
import psutil
import pytest

from tests.contract.engine.conftest import VLLM_TIMEOUT_S, Kind, tokens_of
from tests.contract.engine.test_engine_logprob_contract import TOLERANCE, reference_logprobs
from tests.fixtures.vllm_servers import vllm_environment

MODULE = "seamlessflow_workers.rollout.vllm.main"
DEADLINE_S = 30.0
PROMPT = list(range(20, 60))

pytestmark = pytest.mark.timeout(VLLM_TIMEOUT_S)


class UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket(AF_UNIX)
        self.sock.connect(str(self._path))


def test_starts_with_other_weights_and_nothing_of_it_outlives_its_parent(
    models: Any, vllm_interpreter: str, tmp_path: Path
) -> None:
    uds, weights = tmp_path / "e.sock", models.weights(Kind.VLLM_TIED, 3)
    uds.touch()  # left by a killed predecessor
    command = [
        *(vllm_interpreter, "-m", MODULE, "--model", str(models.folder(Kind.VLLM_TIED)), "--uds", str(uds)),
        *("--max-model-len", "512", "--slots", "4", "--weights", str(weights), "--weight-version", "12"),
    ]
    with parent_of(command) as (parent, engine):
        body = {"token_ids": PROMPT, "sampling_params": {"max_tokens": 20, "ignore_eos": True, "logprobs": 0}}
        choice = answer_of(uds, "/inference/v1/generate", body)["choices"][0]
        family = [engine, *engine.children(recursive=True)]
        parent.kill()

    assert choice["weight_versions"] == [{"version": "12", "start": 0, "end": 20}]
    ids, logprobs = tokens_of(choice)
    expected = reference_logprobs(models.reference(Kind.VLLM_TIED, weights), PROMPT, ids)
    assert np.abs(expected - logprobs).max() < TOLERANCE
    assert len(family) > 2  # vLLM's core and worker are processes of their own
    _, alive = psutil.wait_procs(family, timeout=DEADLINE_S)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


@contextmanager
def parent_of(command: list[str]) -> Iterator[tuple["subprocess.Popen[str]", psutil.Process]]:
    """A process that starts `command` as a supervisor does, and the engine once it is ready."""
    script = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen({command!r}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)\n"
        "while child.stdout.readline().strip() != 'ready': assert child.poll() is None\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=vllm_environment(),
    )
    with parent:
        assert parent.stdout is not None
        try:
            line = parent.stdout.readline()
            assert line, "the engine did not start"
            yield parent, psutil.Process(int(line))
        finally:
            parent.kill()


def answer_of(uds: Path, path: str, body: Any) -> Any:
    connection = UnixConnection(uds)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    assert response.status == 200, content
    return json.loads(content)


@pytest.mark.parametrize("flaw", ["absent", "device", "length"])
def test_model_that_cannot_be_served_is_status_2_and_one_line(
    models: Any, vllm_interpreter: str, tmp_path: Path, flaw: str
) -> None:
    folder = tmp_path / "nowhere" if flaw == "absent" else models.folder(Kind.VLLM_TIED)
    further = {"device": ["--device", "cuda"], "length": ["--max-model-len", "100000"]}.get(flaw, [])

    ended = subprocess.run(
        [vllm_interpreter, "-m", MODULE, "--model", folder, "--uds", tmp_path / "e.sock", *further],
        capture_output=True,
        text=True,
        timeout=VLLM_TIMEOUT_S,
        env=vllm_environment(),
        check=False,
    )

    assert ended.returncode == 2
    said = [line for line in ended.stderr.splitlines() if line.startswith("seamlessflow-vllm: ")]
    assert len(said) == 1
    assert ended.stderr.splitlines()[-1] == said[0]
