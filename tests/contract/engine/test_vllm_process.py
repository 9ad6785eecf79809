"""The vLLM engine as its supervisor starts it: sockets, other weights than the model's own, exit codes, its death."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamlessflow.core.protocol.child import EXIT_INPUT_FAULT, INPUT_FAULT_MARK
from tests.contract.engine.conftest import VLLM_TIMEOUT_S, Kind, tokens_of
from tests.contract.engine.test_engine_logprob_contract import TOLERANCE, reference_logprobs
from tests.fixtures.engine_processes import assert_ended, parent_of, post, refusal_of
from tests.fixtures.vllm_servers import vllm_environment

MODULE = "seamlessflow_workers.rollout.vllm.main"
PROMPT = list(range(20, 60))

pytestmark = pytest.mark.timeout(VLLM_TIMEOUT_S)


def test_starts_with_other_weights_and_nothing_of_it_outlives_its_parent(
    models: Any, vllm_interpreter: str, tmp_path: Path
) -> None:
    uds, weights = tmp_path / "e.sock", models.weights(Kind.VLLM_TIED, 3)
    uds.touch()  # left by a killed predecessor
    command = [
        *(vllm_interpreter, "-m", MODULE, "--model", str(models.folder(Kind.VLLM_TIED)), "--uds", str(uds)),
        *("--max-model-len", "512", "--slots", "4", "--weights", str(weights), "--weight-version", "12"),
    ]
    with parent_of(command, environ=vllm_environment()) as (parent, engine):
        body = {"token_ids": PROMPT, "sampling_params": {"max_tokens": 20, "ignore_eos": True, "logprobs": 0}}
        choice = post(uds, "/inference/v1/generate", body)["choices"][0]
        family = [engine, *engine.children(recursive=True)]
        parent.kill()

    assert choice["weight_versions"] == [{"version": "12", "start": 0, "end": 20}]
    ids, logprobs = tokens_of(choice)
    expected = reference_logprobs(models.reference(Kind.VLLM_TIED, weights), PROMPT, ids)
    assert np.abs(expected - logprobs).max() < TOLERANCE
    assert len(family) > 2  # vLLM's core and worker are processes of their own
    assert_ended(family)


@pytest.mark.parametrize("flaw,status", [("absent", 2), ("device", 2), ("length", EXIT_INPUT_FAULT)])
def test_model_that_cannot_be_served_is_one_line_and_a_status_that_says_whether_another_machine_could(
    models: Any, vllm_interpreter: str, tmp_path: Path, flaw: str, status: int
) -> None:
    folder = tmp_path / "nowhere" if flaw == "absent" else models.folder(Kind.VLLM_TIED)
    further = {"device": ["--device", "cuda"], "length": ["--max-model-len", "100000"]}.get(flaw, [])

    command = [
        vllm_interpreter,
        "-m",
        MODULE,
        "--model",
        str(folder),
        "--uds",
        str(tmp_path / "e.sock"),
        *further,
    ]
    ended = refusal_of(command, environ=vllm_environment(), timeout_s=VLLM_TIMEOUT_S)

    assert ended.returncode == status
    mark = "seamlessflow-vllm: " if status == 2 else INPUT_FAULT_MARK
    said = [line for line in ended.stderr.splitlines() if line.startswith(mark)]
    assert len(said) == 1
    assert ended.stderr.splitlines()[-1] == said[0]
