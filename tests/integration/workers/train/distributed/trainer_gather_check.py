"""Run as a script with a model folder and an empty one: ZeRO-3 over two ranks publishes the same weights twice.

Once in one bucket, once in small ones. Prints one JSON line per case with the most bytes that were put together at a
time and with the digest of what was written.
"""

import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from seamlessflow.core.job_spec import JobSpec
from seamlessflow_workers.train.distributed.rank_group import engine_load
from seamlessflow_workers.train.step import process_group
from seamlessflow_workers.weights.transports.file.sending import weights_publish
from tests.fixtures.trainer_harness import make_spec

BUCKETS = {"whole": 2**30, "small": 8 * 1024}  # bytes


def record_gathers() -> list[int]:
    """Bytes of the parameters of each gather from now on, in this process."""
    sizes: list[int] = []
    gathered = process_group.deepspeed.zero.GatheredParameters

    def recorded(parameters: list[Any], **options: Any) -> Any:
        unique = {id(parameter): parameter for parameter in parameters}.values()
        sizes.append(sum(parameter.ds_numel * parameter.element_size() for parameter in unique))
        return gathered(parameters, **options)

    process_group.deepspeed.zero.GatheredParameters = recorded
    return sizes


def main(model_path: Path, folder: Path) -> None:
    engine = engine_load(model_path, JobSpec.model_validate(make_spec(zero_stage=3, num_ranks=2)))
    sizes = record_gathers()
    for name, max_bucket_bytes in BUCKETS.items():
        sizes.clear()
        published = weights_publish(
            folder / name,
            engine,
            job_id=UUID(int=1),
            version=1,
            parent_version=0,
            dtype="float32",
            max_bucket_bytes=max_bucket_bytes,
        )
        layouts = engine.layouts()
        row = {
            "case": name,
            "num_gathers": len(sizes),
            "most_bytes": max(sizes),
            "largest_tensor": max(layout.num_bytes for layout in layouts.values()),
            "all_bytes": sum(layout.num_bytes for layout in layouts.values()),
            "sha256": published.manifest_sha256,
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
