"""The DeepSpeed trainer on the device: its numbers, its memory, the weights it passes to an engine,
agreement with it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fixtures.trainer_harness import child_environment
from tests.gpu.conftest import Figures
from tests.gpu.models import build_model
from tests.gpu.trainer_check import CASES, SHARING

Rows = dict[str, dict[str, Any]]
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
# Largest and mean difference between the logprobs of trainer and engine, after weights were passed on.
TOLERANCES = {"float32": (1e-3, 1e-4), "bfloat16": (1.0, 0.05)}


@pytest.fixture(scope="module")
def model(device: torch.device, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("model") / "model", device=device)


def rows_of(model: Path, folder: Path, environment: dict[str, str], *names: str) -> Rows:
    """Run all cases, or the first steps of some, in a process of its own, because a trainer's process group cannot be
    replaced."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.trainer_check", model, folder, *names],
        env=child_environment() | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
    return {line.pop("case"): line for line in lines}


@pytest.fixture(scope="module")
def rows(
    device: torch.device, model: Path, figures: Figures, tmp_path_factory: pytest.TempPathFactory
) -> Rows:
    rows = rows_of(model, tmp_path_factory.mktemp("device"), {"DS_ACCELERATOR": device.type})
    figures |= {f"trainer {case}": row for case, row in rows.items()}
    return rows


@pytest.mark.parametrize("case", CASES)
def test_trainer_computes_on_the_device_and_agrees_with_the_engine(
    device: torch.device, rows: Rows, case: str
) -> None:
    row = rows[case]
    assert torch.device(row["device"]).type == device.type
    assert row["backend"] == BACKENDS[device.type]
    largest, mean = TOLERANCES[CASES[case]["dtype"]]
    assert 0 < row["mismatch max"] < largest
    assert row["mismatch mean"] < mean
    assert row["grad_norm after reload"] > 0
    if device.type == "cuda":
        assert row["freed MB"] > row["weights MB"]  # between phases, to engines that share the card
        assert row["peak MB"] > row["kept MB"]
        assert row["peak MB"] > row["weights MB"]


def test_a_step_on_trees_equals_the_step_on_branches(rows: Rows) -> None:
    sharing = rows[SHARING]
    assert sharing["trees"]["num_tokens"] < sharing["branches"]["num_tokens"]
    for name in ("loss", "grad_norm"):
        assert sharing["trees"][name] == pytest.approx(sharing["branches"][name], rel=1e-3, abs=1e-5)
    for dtype, tolerance in (("float32", 1e-3), ("bfloat16", 0.1)):
        branches = rows[f"{dtype} rows"]
        others = [row for case, row in rows.items() if case.startswith(f"{dtype} trees")]
        for row in others:
            assert row["grad_norm"] == pytest.approx(branches["grad_norm"], rel=tolerance)
            assert row["entropy"] == pytest.approx(branches["entropy"], rel=tolerance)


def test_a_step_on_the_device_equals_the_step_on_a_cpu(rows: Rows, model: Path, tmp_path: Path) -> None:
    num_cores = str(len(os.sched_getaffinity(0)))  # the model is one for a GPU
    no_card = {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": num_cores}
    case = "float32 rows"
    expected = rows_of(model, tmp_path, no_card, case)[case]
    for name in ("loss", "grad_norm", "entropy"):
        assert rows[case][name] == pytest.approx(expected[name], rel=2e-3, abs=1e-5), name
