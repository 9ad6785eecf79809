"""Run as a script with a model folder, an empty one, a ZeRO stage and a number of ranks: publishes the weights twice.

Once in one bucket and shard, once in small ones. Prints one JSON line per case with the most bytes that were put
together at a time, the digest of what was written, and how many of the shards this process wrote. A single rank then
publishes weights that hold NaN.
"""

import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import torch

from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.distributed.rank_group import engine_load
from seamlessflow_workers.train.step import process_group
from seamlessflow_workers.weights.transports.file import shards
from seamlessflow_workers.weights.transports.file.sending import WeightsWriteError, weights_publish
from tests.fixtures.trainer_harness import make_spec

SIZES = {"whole": (2**30, 2**30), "small": (8 * 1024, 16 * 1024)}  # bytes of a bucket and of a shard


def record_gathers() -> list[int]:
    """Bytes of the parameters of each gather from now on, in this process."""
    sizes: list[int] = []
    gathered = process_group.deepspeed.zero.GatheredParameters

    def recorded(parameters: list[Any], **options: Any) -> Any:
        unique = {id(parameter): parameter for parameter in parameters}.values()
        sizes.append(sum(_numel(parameter) * parameter.element_size() for parameter in unique))
        return gathered(parameters, **options)

    process_group.deepspeed.zero.GatheredParameters = recorded
    return sizes


def _numel(parameter: Any) -> int:
    return int(getattr(parameter, "ds_numel", parameter.numel()))  # set where it is partitioned


def record_writes() -> list[Path]:
    """Files of shards that this process writes from now on."""
    paths: list[Path] = []
    written = shards.write_durably  # type: ignore[attr-defined]

    def recorded(path: Path, chunks: Any) -> Any:
        paths.append(path)
        return written(path, chunks)

    shards.write_durably = recorded  # type: ignore[attr-defined]
    return paths


def main(model_path: Path, folder: Path, zero_stage: int, num_ranks: int) -> None:
    spec = make_spec(zero_stage=zero_stage, num_ranks=num_ranks)
    engine = engine_load(model_path, JobSpec.model_validate(spec))
    sizes, written = record_gathers(), record_writes()
    for name, (max_bucket_bytes, max_shard_bytes) in SIZES.items():
        sizes.clear()
        written.clear()
        published = weights_publish(
            folder / name,
            engine,
            job_id=UUID(int=1),
            version=1,
            parent_version=0,
            dtype="float32",
            max_bucket_bytes=max_bucket_bytes,
            max_shard_bytes=max_shard_bytes,
        )
        layouts = engine.layouts()
        row = {
            "case": name,
            "num_gathers": len(sizes),
            "most_bytes": max(sizes, default=0),
            "largest_tensor": max(layout.num_bytes for layout in layouts.values()),
            "all_bytes": sum(layout.num_bytes for layout in layouts.values()),
            "sha256": published.manifest_sha256,
            "num_shards": len(list(published.folder.glob("*.safetensors"))),
            "num_written": len(written),
        }
        print(json.dumps(row), flush=True)
    if num_ranks == 1:
        print(json.dumps({"case": "flawed", "told": publish_flawed(engine, folder / "flawed")}), flush=True)


def publish_flawed(engine: Any, folder: Path) -> str:
    """Publish weights of which one is NaN; return what that says."""
    with torch.no_grad():
        engine._engine.module.model.model.norm.weight[0] = torch.nan
    try:
        weights_publish(folder, engine, job_id=UUID(int=1), version=1, parent_version=0, dtype="float32")
    except WeightsWriteError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
