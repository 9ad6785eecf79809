"""What an engine checks of new weights, and what it believes of the manifest beside them."""

from pathlib import Path
from uuid import UUID

import pytest
import torch
from safetensors.torch import save_file

from seamlessflow_workers.rollout.weights import TensorSlice, WeightUpdates, pages_touch
from seamlessflow_workers.weights.manifest import MANIFEST_NAME, WeightsManifest, manifest_encode
from seamlessflow_workers.weights.offers import WeightsError
from seamlessflow_workers.weights.page_cache import pages_load

NAME = "model.norm.weight"


def version(folder: Path, *, are_finite: bool) -> Path:
    """Return the folder of a version whose only tensor has NaN."""
    folder.mkdir()
    save_file({NAME: torch.tensor([1.0, torch.nan])}, folder / "model-00001.safetensors")
    manifest = WeightsManifest(
        job_id=UUID(int=1),
        version=1,
        parent_version=0,
        dtype="float32",
        total_bytes=8,
        shards={},
        tensors={},
        are_finite=are_finite,
    )
    (folder / MANIFEST_NAME).write_bytes(manifest_encode(manifest))
    return folder


def test_values_are_checked_once_by_whoever_wrote_them_or_else_here(tmp_path: Path) -> None:
    updates = WeightUpdates(tmp_path, {NAME: (2,)}, tied_embedding=None, dtype=torch.float32)
    with pytest.raises(WeightsError, match=f"{NAME} has NaN or infinite values"):
        updates.stage(version(tmp_path / "unchecked", are_finite=False))
    staged = updates.stage(version(tmp_path / "checked", are_finite=True))
    assert torch.isnan(staged.values[NAME]).any()
    (tmp_path / "checked" / MANIFEST_NAME).unlink()
    with pytest.raises(WeightsError, match="NaN"):
        updates.stage(tmp_path / "checked")


def test_a_worker_brings_only_its_part_of_a_file_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, loaded, touched = "seamlessflow_workers.rollout.weights", list[Path](), list[int]()
    monkeypatch.setattr(f"{module}.pages_load", loaded.append)
    monkeypatch.setattr(f"{module}.pages_touch", lambda value: touched.append(value.numel()))
    folder = version(tmp_path / "checked", are_finite=True)
    for slices in ({}, {NAME: TensorSlice(dim=0, start=1, size=1)}):
        updates = WeightUpdates(
            tmp_path, {NAME: (2,)}, tied_embedding=None, dtype=torch.float32, slices=slices
        )
        updates.stage(folder)
    assert (loaded, touched) == ([folder / "model-00001.safetensors"], [1])


def bytes_in_memory(path: Path) -> int:
    """Return how much of the mapped file this process has in memory."""
    maps = Path("/proc/self/smaps").read_text().split(str(path))
    return sum(int(one.split("Rss:")[1].split()[0]) * 1024 for one in maps[1:])


def test_every_page_of_a_mapped_part_is_read(tmp_path: Path) -> None:
    path, row_bytes = tmp_path / "values", 64 * 4096
    path.write_bytes(bytes(128 * row_bytes))
    mapped = torch.from_file(str(path), size=128 * row_bytes, dtype=torch.uint8).view(128, row_bytes)
    assert bytes_in_memory(path) == 0
    pages_touch(mapped[64:])
    assert 64 * row_bytes <= bytes_in_memory(path) < 128 * row_bytes
    for value in (mapped[0, 0], mapped[:0], mapped[:2, :0]):
        pages_touch(value)


def test_files_are_brought_into_memory_whatever_their_size(tmp_path: Path) -> None:
    for num_bytes in (0, 1, 5 * 1024**2):
        path = tmp_path / str(num_bytes)
        path.write_bytes(b"x" * num_bytes)
        pages_load(path)
    with pytest.raises(FileNotFoundError):
        pages_load(tmp_path / "absent")
