"""Of most weights, a worker of several reads and checks only the part that it loads."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from seamlessflow_workers.rollout.weights import TensorSlice, TensorSlices, WeightUpdates, own_slice
from seamlessflow_workers.weights.manifest import ADAPTER_CONFIG_NAME, ADAPTER_SHARD_NAME
from seamlessflow_workers.weights.offers import WeightsError

COLUMNS, ROWS, NORM = "l.up_proj.weight", "l.down_proj.weight", "l.norm.weight"
SHAPES = {COLUMNS: (8, 4), ROWS: (4, 8), NORM: (4,)}
# Two workers, as vLLM cuts the weights: by outputs, by inputs, and not at all.
RANK_SLICES: list[TensorSlices] = [
    {COLUMNS: TensorSlice(0, 4 * rank, 4), ROWS: TensorSlice(1, 4 * rank, 4)} for rank in (0, 1)
]
ALL_BYTES = 4 * (8 * 4 + 4 * 8 + 4)


def tensors() -> dict[str, Tensor]:
    chance = torch.Generator().manual_seed(7)
    return {name: torch.randn(shape, generator=chance) for name, shape in SHAPES.items()}


def updates(folder: Path, slices: TensorSlices | None = None) -> WeightUpdates:
    return WeightUpdates(folder, SHAPES, tied_embedding=None, dtype=torch.float32, slices=slices or {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file(tensors(), tmp_path / "model.safetensors")
    return tmp_path


def test_two_workers_read_the_model_about_once_and_together_all_of_it(folder: Path) -> None:
    staged = [updates(folder, slices).stage(folder / "model.safetensors") for slices in RANK_SLICES]
    assert [update.num_bytes for update in staged] == [(ALL_BYTES + 16) // 2] * 2, "both have the norm"
    assert updates(folder).stage(folder / "model.safetensors").num_bytes == ALL_BYTES
    for name, dim in ((COLUMNS, 0), (ROWS, 1)):
        halves = [
            own_slice(name, update.values[name], slices)
            for update, slices in zip(staged, RANK_SLICES, strict=True)
        ]
        assert torch.equal(torch.cat(halves, dim), tensors()[name])


@pytest.mark.parametrize(
    "name, index, finder", [(COLUMNS, (7, 0), 1), (ROWS, (3, 0), 0), (ROWS, (0, 7), 1), (NORM, (2,), None)]
)
def test_a_flaw_is_found_by_the_worker_that_loads_it(
    folder: Path, name: str, index: tuple[int, ...], finder: int | None
) -> None:
    flawed = tensors()
    flawed[name][index] = float("nan")
    save_file(flawed, folder / "new.safetensors")
    for rank, slices in enumerate(RANK_SLICES):
        if finder in (rank, None):
            with pytest.raises(WeightsError, match=f"{name} has NaN"):
                updates(folder, slices).stage(folder / "new.safetensors")
        else:
            updates(folder, slices).stage(folder / "new.safetensors")


def test_a_worker_adds_an_adapter_to_its_part_only(folder: Path) -> None:
    adapter = folder / "adapter"
    adapter.mkdir()
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
    (adapter / ADAPTER_CONFIG_NAME).write_text(json.dumps(config))
    low_rank = {}
    for name in (COLUMNS, ROWS):
        outputs, inputs = SHAPES[name]
        module = f"base_model.model.{name.removesuffix('.weight')}"
        low_rank[f"{module}.lora_A.weight"] = torch.randn(2, inputs)
        low_rank[f"{module}.lora_B.weight"] = torch.randn(outputs, 2)
    save_file(low_rank, adapter / ADAPTER_SHARD_NAME)
    whole = updates(folder).stage(adapter)
    for slices in RANK_SLICES:
        update = updates(folder, slices).stage(adapter)
        assert update.num_bytes == whole.num_bytes // 2
        for name, value in update.values.items():
            assert value.shape == whole.values[name].shape
            torch.testing.assert_close(
                own_slice(name, value, slices), own_slice(name, whole.values[name], slices), rtol=0, atol=1e-6
            )
