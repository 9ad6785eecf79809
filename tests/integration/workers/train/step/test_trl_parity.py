"""Loss and gradient of the algorithms that TRL also has, equal to TRL's own code on the same ragged batch."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deploy.local.bootstrap import SetupFailed
from deploy.local.peers_environment import ensure
from seamlessflow.core.algorithms.aggregation import token_scales
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow_workers.train.step.loss import TokenTerms, policy_loss

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NUM_SEQUENCES, MAX_TOKENS = 9, 21
# Our algorithm section, and TRL's settings for the same thing.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"name": "grpo"}, {"trainer": "grpo", "beta": 0.04}),
    "dr_grpo": ({"name": "dr_grpo"}, {"trainer": "grpo", "loss_type": "dr_grpo"}),
    "dapo": ({"name": "dapo"}, {"trainer": "grpo", "loss_type": "dapo", "epsilon_high": 0.28}),
    "dapo with dual clip": (
        {"name": "dapo", "dual_clip": 1.35},
        {"trainer": "grpo", "loss_type": "dapo", "epsilon_high": 0.28, "delta": 1.35},
    ),
    "gspo": (
        {"name": "gspo"},
        {
            "trainer": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon_low": 3e-4,
            "epsilon_high": 4e-4,
        },
    ),
    "gspo with a wide clip": (
        {"name": "gspo", "clip_low": 0.05, "clip_high": 0.06},
        {
            "trainer": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon_low": 0.05,
            "epsilon_high": 0.06,
        },
    ),
    "cispo": (
        {"name": "cispo", "clip_high": 0.3},
        {"trainer": "grpo", "loss_type": "cispo", "epsilon_high": 1.3},
    ),
    "rloo": ({"name": "rloo", "kl_coef": 0.0}, {"trainer": "rloo"}),
}


def make_batch() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shape = (NUM_SEQUENCES, MAX_TOKENS)
    old = rng.normal(-2, 0.7, shape)
    lengths = rng.integers(1, MAX_TOKENS + 1, NUM_SEQUENCES)
    mask = (np.arange(MAX_TOKENS) < lengths[:, None]) & (rng.random(shape) < 0.8)
    mask[:, 0] = True
    return {
        "old_logprobs": old.tolist(),
        "logprobs": (old + rng.normal(0, 0.3, shape)).tolist(),
        "reference_logprobs": (old + rng.normal(0, 0.3, shape)).tolist(),
        "mask": mask.astype(float).tolist(),
        "advantages": rng.normal(size=NUM_SEQUENCES).tolist(),
    }


@pytest.fixture(scope="module")
def trl_python() -> str:
    """TRL's environment, made on demand; a loud skip where it cannot be made, a failure under CI=true."""
    try:
        return str(ensure())
    except SetupFailed as failure:
        pytest.skip(f"TRL's environment cannot be made: {failure}")


@pytest.fixture(scope="module")
def theirs(trl_python: str) -> dict[str, Any]:
    request = {"cases": {name: settings for name, (_, settings) in CASES.items()}, "batch": make_batch()}
    result = subprocess.run(
        [trl_python, Path(__file__).with_name("trl_losses.py")],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    answer: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return answer


def ours(algorithm: AlgorithmSection) -> tuple[float, torch.Tensor]:
    batch = {name: torch.tensor(value, dtype=torch.float64) for name, value in make_batch().items()}
    mask = batch["mask"].bool()
    logprobs = batch["logprobs"].requires_grad_()
    counts = mask.sum(1).numpy()
    scales = torch.from_numpy(
        token_scales(
            weights=np.ones(int(counts.sum())),
            sample_starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            sample_sessions=np.arange(NUM_SEQUENCES, dtype=np.int32),
            aggregation=algorithm.aggregation,
            constant=float(MAX_TOKENS),
        )
    )
    sequences = torch.nonzero(mask)[:, 0]
    advantages = batch["advantages"][sequences] * scales
    terms = TokenTerms(
        behaviour_logprobs=batch["old_logprobs"][mask],
        advantages_positive=advantages.clamp(min=0),
        advantages_negative=advantages.clamp(max=0),
        loss_weights=scales,
        sequences=sequences,
        num_sequences=NUM_SEQUENCES,
        is_current=torch.ones(len(scales), dtype=torch.bool),
        reference_logprobs=batch["reference_logprobs"][mask] if algorithm.needs_reference else None,
    )
    loss = policy_loss(logprobs[mask], terms, algorithm).loss
    loss.backward()
    assert logprobs.grad is not None
    return float(loss.detach()), logprobs.grad


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_equal_those_of_trl(theirs: dict[str, Any], case: str) -> None:
    loss, gradient = ours(AlgorithmSection.model_validate(CASES[case][0]))
    assert loss == pytest.approx(theirs[case]["loss"], abs=1e-10)
    wanted = torch.tensor(theirs[case]["gradient"], dtype=torch.float64)
    torch.testing.assert_close(gradient, wanted, atol=1e-10, rtol=0)
    assert float(wanted.abs().max()) > 1e-3
