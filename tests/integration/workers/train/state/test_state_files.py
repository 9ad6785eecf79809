"""Files of a trainer's state without a trainer: what is copied, what is refused, how much memory a copy may take."""

from pathlib import Path

import pytest
import torch

from seamlessflow_workers.train.checkpoint import CheckpointReadError
from seamlessflow_workers.train.state.background import StateWriter
from seamlessflow_workers.train.state.files import RankState, StateFiles, rank_file, slices_to_write
from seamlessflow_workers.train.state.host_memory import available_bytes
from seamlessflow_workers.train.state.owned import OwnedSlice

NUM_ELEMENTS = 12


def owned_of(optimizer: torch.optim.Optimizer, start: int, end: int) -> OwnedSlice:
    """Return elements of the optimizer's only tensor, as if it were the parameter `weight` [3, 4]."""
    (owner,) = optimizer.param_groups[0]["params"]
    return OwnedSlice(
        name="weight",
        shape=(3, 4),
        start=start,
        num_elements=end - start,
        is_replicated=False,
        owner=owner,
        offset=start,
        optimizer=optimizer,
    )


def stepped() -> torch.optim.Optimizer:
    weight = torch.nn.Parameter(torch.arange(float(NUM_ELEMENTS)))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    return optimizer


def contents(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    return {kind: value.clone() for kind, value in owned_of(optimizer, 0, NUM_ELEMENTS).values().items()}


def written(folder: Path, cuts: tuple[int, ...]) -> torch.optim.Optimizer:
    """Write the state as ranks do that hold the elements between these cuts."""
    optimizer = stepped()
    bounds = (0, *cuts, NUM_ELEMENTS)
    num_ranks = len(bounds) - 1
    for rank in range(num_ranks):
        own = slices_to_write(
            [owned_of(optimizer, bounds[rank], bounds[rank + 1])], rank=rank, num_ranks=num_ranks
        )
        RankState.of(own, {}).write(rank_file(folder, rank=rank, num_ranks=num_ranks))
    return optimizer


def test_any_slice_is_put_together_from_the_files_that_have_some_of_it(tmp_path: Path) -> None:
    before = contents(written(tmp_path, (5, 7)))
    fresh = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(NUM_ELEMENTS))])
    with StateFiles(tmp_path) as files:
        for start, end in ((0, 6), (6, 11), (11, 12)):
            files.restore(owned_of(fresh, start, end))
    after = contents(fresh)
    assert after.keys() == before.keys() == {"param", "exp_avg", "exp_avg_sq"}
    assert all(torch.equal(after[kind], before[kind]) for kind in before)
    assert owned_of(fresh, 0, 1).step == 1


@pytest.mark.parametrize("is_without_copy", [False, True])
def test_the_written_state_is_that_of_the_moment_it_was_begun(tmp_path: Path, is_without_copy: bool) -> None:
    """Copied if there is memory, else written at once."""
    optimizer = stepped()
    before = contents(optimizer)
    writer = StateWriter(num_sharing=1, available=lambda: 0 if is_without_copy else 10**9)
    path = rank_file(tmp_path, rank=0, num_ranks=1)
    writer.begin(RankState.of([owned_of(optimizer, 0, NUM_ELEMENTS)], {}), path)
    assert path.exists() or not is_without_copy
    optimizer.step()
    writer.finish()
    assert writer.is_done()
    fresh = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(NUM_ELEMENTS))])
    with StateFiles(tmp_path) as files:
        files.restore(owned_of(fresh, 0, NUM_ELEMENTS))
    assert all(torch.equal(value, before[kind]) for kind, value in contents(fresh).items())


def test_a_write_that_fails_is_told_when_it_is_finished(tmp_path: Path) -> None:
    writer = StateWriter(num_sharing=1, available=lambda: 10**9)
    writer.begin(
        RankState.of([owned_of(stepped(), 0, NUM_ELEMENTS)], {}),
        rank_file(tmp_path / "absent", rank=0, num_ranks=1),
    )
    with pytest.raises(FileNotFoundError):
        writer.finish()


def test_a_missing_file_and_a_damaged_one_are_one_sentence_each(tmp_path: Path) -> None:
    written(tmp_path, (5,))
    second = rank_file(tmp_path, rank=1, num_ranks=2)
    raw = second.read_bytes()
    second.unlink()
    with pytest.raises(CheckpointReadError, match="has the files of 1 of 2 ranks"):
        StateFiles(tmp_path)
    second.write_bytes(raw[:-1])
    with pytest.raises(CheckpointReadError, match=f"checkpoint file {second} cannot be read"):
        StateFiles(tmp_path)


def test_elements_that_no_file_has_are_refused(tmp_path: Path) -> None:
    optimizer = stepped()
    RankState.of([owned_of(optimizer, 0, 5)], {}).write(rank_file(tmp_path, rank=0, num_ranks=1))
    with (
        StateFiles(tmp_path) as files,
        pytest.raises(CheckpointReadError, match="up to element 5, not up to 8"),
    ):
        files.restore(owned_of(optimizer, 4, 8))


def test_memory_is_that_of_the_host_or_of_a_container_with_less(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  9000 kB\nMemAvailable:   4000 kB\n")
    assert available_bytes(meminfo, tmp_path / "no-container") == 4000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(meminfo, tmp_path) == 4000 * 1024
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("2500000\n")
    (tmp_path / "memory.stat").write_text("anon 2000000\ninactive_file 400000\n")
    assert available_bytes(meminfo, tmp_path) == 900_000
