"""Saves the state of DeepSpeed's engine by rank, and restores it on any number of ranks.

Takes an engine and a folder. Contents of a checkpoint: trained parameters in float32, the optimizer's moments and
steps, and the state of the random generators. Learning rates and counters come from the batch number (`step.engine`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seamlessflow_workers.train.checkpoint import CheckpointReadError
from seamlessflow_workers.train.state.background import StateWriter
from seamlessflow_workers.train.state.files import RankState, StateFiles, rank_file, slices_to_write
from seamlessflow_workers.train.state.owned import ShardOf, owned_slices, weights_follow

_CPU, _CUDA = "cpu", "cuda"


def state_write(engine: Any, shards: Mapping[Tensor, ShardOf], folder: Path, writer: StateWriter) -> None:
    """Begin to write the file of this rank. `shards`: see `owned_slices`."""
    rank, num_ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    folder.mkdir(parents=True, exist_ok=True)  # by any of the ranks
    own = slices_to_write(owned_slices(engine, shards), rank=rank, num_ranks=num_ranks)
    state = RankState.of(own, _random_states() if rank == 0 else {})
    writer.begin(state, rank_file(folder, rank=rank, num_ranks=num_ranks))


def state_written(writer: StateWriter, device: torch.device, *, waits: bool) -> bool:
    """Return whether all ranks have written their files; with `waits` only then. All ranks call it together.

    Raises the errors of writing this rank's file.
    """
    if waits or writer.is_done():
        writer.finish()
    num_done = torch.tensor(int(writer.is_done()), device=device)
    torch.distributed.all_reduce(num_done)
    return int(num_done) == torch.distributed.get_world_size()


def state_read(engine: Any, shards: Mapping[Tensor, ShardOf], folder: Path) -> None:
    """Restore this rank's slices. All ranks call it together. Raises CheckpointReadError."""
    owned = owned_slices(engine, shards)
    trained = {name for name, parameter in engine.module.named_parameters() if parameter.requires_grad}
    with StateFiles(folder) as files:
        if strangers := sorted(files.names - trained):
            raise CheckpointReadError(f"checkpoint {folder} has {strangers[0]}, which is not trained here")
        for one in owned:
            files.restore(one)
        random_states = files.random_states()
    weights_follow(engine)
    random_states_restore(random_states)


def random_states_restore(states: dict[str, Tensor]) -> None:
    torch.set_rng_state(states[_CPU].cpu())
    if torch.cuda.is_available() and _CUDA in states:  # a checkpoint made on a CPU has none
        torch.cuda.set_rng_state(states[_CUDA].cpu())


def _random_states() -> dict[str, Tensor]:
    states = {_CPU: torch.get_rng_state()}
    if torch.cuda.is_available():
        states[_CUDA] = torch.cuda.get_rng_state()
    return states
