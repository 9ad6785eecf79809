"""An embedded engine as its supervisor starts it: a process on the device, at a unix socket."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fixtures.engine_processes import UnixConnection, post
from tests.fixtures.trainer_harness import child_environment

MANY_TOKENS = 400  # more than are sampled before the engine is killed


class EngineProcess:
    def __init__(self, model: Path, uds: Path, device: str) -> None:
        self._model = model
        self._uds = uds
        self._device = device
        self.process = self.start()

    def start(self, *, weights: Path | None = None, version: str = "0") -> "subprocess.Popen[str]":
        """Start it, instead of one that has ended; return when it serves."""
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "seamlessflow_workers.rollout.engine"),
                *("--model", str(self._model), "--uds", str(self._uds), "--device", self._device),
                *("--max-model-len", "512", "--slots", "16", "--weight-version", version),
                *(("--weights", str(weights)) if weights is not None else ()),
            ],
            env=child_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line == "ready", f"the engine did not start; it said {line!r}"
        return self.process

    def post(self, path: str, body: Any = None) -> Any:
        return post(self._uds, path, {} if body is None else body)

    def update(self, version: Path, name: str) -> None:
        self.post("/init_weight_transfer_engine", {"init_info": {}})
        self.post("/start_weight_update")
        self.post("/update_weights", {"update_info": {"path": str(version)}})
        self.post("/finish_weight_update", {"weight_version": name})

    def generate(self, prompt: list[int], num_tokens: int) -> dict[str, Any]:
        answer = self.post("/inference/v1/generate", _request(prompt, num_tokens))
        choice: dict[str, Any] = answer["choices"][0]
        return choice

    def kill_while_it_samples(self, prompt: list[int]) -> None:
        connection = UnixConnection(self._uds)
        body = json.dumps({**_request(prompt, MANY_TOKENS), "stream": True})
        connection.request("POST", "/inference/v1/generate", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.readline(), "the engine ended before it sampled"
        self.kill()
        connection.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _request(prompt: list[int], num_tokens: int) -> dict[str, Any]:
    params = {"max_tokens": num_tokens, "ignore_eos": True, "logprobs": 0}
    return {"token_ids": prompt, "sampling_params": params}
