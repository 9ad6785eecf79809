"""Tests that run on a GPU, and the same on the processor, where nothing but the device differs.

The variant `cuda` is marked `gpu`; without a CUDA device it is skipped with a sentence that the summary shows, and with
REQUIRE_GPU set it fails instead, so that a machine meant to have one cannot pass by skipping.
"""

import importlib.util
import os
from pathlib import Path

import pytest
import torch

VLLM_ENVIRONMENT = Path(__file__).parents[2] / ".seamlessflow" / "venvs" / "vllm"
NO_VLLM = "vLLM is not importable here, nor in .seamlessflow/venvs/vllm"
NO_GPU = "no CUDA device: torch sees none, so NOTHING WAS RUN ON A GPU"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu" in item.path.parts:
            item.add_marker(pytest.mark.timeout(600))
            if isinstance(item, pytest.Function) and getattr(item, "callspec", None):
                _skip_vllm(item, item.callspec.params)


def _skip_vllm(item: pytest.Function, variant: dict[str, object]) -> None:
    """vLLM on the processor has a suite of its own; here it is for the card alone."""
    if variant.get("engine") != "vllm":
        return
    if variant.get("device") == "cpu":
        item.add_marker(pytest.mark.skip(reason="vLLM on the processor is tested by its contract suite"))
    elif not (VLLM_ENVIRONMENT.exists() or importlib.util.find_spec("vllm")):
        item.add_marker(pytest.mark.skip(reason=NO_VLLM))


@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.gpu), "cpu"])
def device(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name == "cuda" and not torch.cuda.is_available():
        if os.environ.get("REQUIRE_GPU"):
            pytest.fail(NO_GPU)
        pytest.skip(NO_GPU)
    return name
