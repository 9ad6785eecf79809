"""Run as a script with a model folder and an empty one: a trainer of two processes publishes experts that it spread.

Prints one JSON line: the names that were published, and whether their bytes are those of the model folder.
"""

import json
import sys
from pathlib import Path
from uuid import UUID

from safetensors.torch import load_file

from seamlessflow_workers.train.distributed.rank_group import engine_load
from seamlessflow_workers.weights.transports.file.sending import weights_publish
from tests.integration.workers.train.mixtures.mixture_check import spec_of


def main(model_path: Path, folder: Path) -> None:
    engine = engine_load(model_path, spec_of(1, num_ranks=2, parallel={"expert": 2}))
    version = weights_publish(
        folder,
        engine,
        job_id=UUID(int=1),
        version=1,
        parent_version=0,
        dtype="float32",
        max_bucket_bytes=4096,
    )
    stored = load_file(model_path / "model.safetensors")
    published = {
        name: tensor
        for shard in version.folder.glob("*.safetensors")
        for name, tensor in load_file(shard).items()
    }
    row = {
        "case": "two processes",
        "num_experts_tensors": sum(".experts." in name for name in published),
        "is_as_stored": all((stored[name] == tensor).all().item() for name, tensor in published.items()),
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
