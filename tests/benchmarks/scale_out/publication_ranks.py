"""Run as a script by each rank, with a folder and a number of repeats: publishes 2 GB, and copies them with `cp`.

Rank 0 prints one JSON line with the rates of both in GB/s, and leaves the last version as `kept`.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import torch
from torch import Tensor

from seamlessflow_workers.train.step.process_group import process_group
from seamlessflow_workers.train.step.publishing import shards_of_all_ranks
from seamlessflow_workers.weights.manifest import ShardEntry
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import RawTensor, TensorLayout
from seamlessflow_workers.weights.transports.file.sending import weights_publish
from seamlessflow_workers.weights.transports.file.shards import ShardOrder

NUM_TENSORS, NUM_ELEMENTS = 64, 16_000_000  # in bfloat16: 2.05 GB
GB = 1e9


class Weights:
    """The tensors of a model that every rank has as a whole."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        values = torch.empty(NUM_ELEMENTS, dtype=torch.bfloat16).normal_(std=0.02)
        self._tensors: dict[str, Tensor] = {f"layer.{n:03d}": values.clone() for n in range(NUM_TENSORS)}

    def layouts(self) -> Mapping[str, TensorLayout]:
        return {
            name: TensorLayout("BF16", tuple(tensor.shape), tensor.numel() * 2)
            for name, tensor in self._tensors.items()
        }

    def shards_write(self, order: ShardOrder, sealed: SealedShards | None = None) -> dict[str, ShardEntry]:
        if torch.distributed.get_rank() == 0:
            torch.distributed.broadcast_object_list([order])
        return shards_of_all_ranks(
            order,
            self.layouts(),
            lambda names, _is_own: {name: _raw(self._tensors[name]) for name in names},
            sealed=sealed,
            gathers_together=False,
            device=torch.device("cpu"),
        )

    def follow(self) -> None:
        """Do what rank 0 does."""
        received: list[ShardOrder | None] = [None]
        torch.distributed.broadcast_object_list(received)
        assert received[0] is not None
        self.shards_write(received[0])


def _raw(tensor: Tensor) -> RawTensor:
    data = tensor.clone().view(torch.uint8).numpy()
    return RawTensor("BF16", tuple(tensor.shape), data.data, data.nbytes)


def main(folder: Path, num_repeats: int) -> None:
    weights, kept = Weights(), folder / "kept"
    num_bytes = sum(layout.num_bytes for layout in weights.layouts().values())
    rates: dict[str, list[float]] = {"publish": [], "cp": []}
    for _ in range(num_repeats + 1):  # the first one makes pages that the others find
        torch.distributed.barrier()
        if torch.distributed.get_rank():
            weights.follow()
            continue
        shutil.rmtree(kept, ignore_errors=True)
        started_s = time.monotonic()
        published = weights_publish(
            folder / "versions", weights, job_id=UUID(int=1), version=1, parent_version=0, dtype="bfloat16"
        )
        published_s = time.monotonic()
        subprocess.run(["cp", "-r", str(published.folder), str(kept)], check=True)
        rates["publish"].append(num_bytes / GB / (published_s - started_s))
        rates["cp"].append(num_bytes / GB / (time.monotonic() - published_s))
        shutil.rmtree(folder / "versions")
    if torch.distributed.get_rank() == 0:
        measured = {name: values[1:] for name, values in rates.items()}
        sys.stdout.write(json.dumps({"case": "rates", **measured}) + "\n")


if __name__ == "__main__":
    with process_group():
        main(Path(sys.argv[1]), int(sys.argv[2]))
