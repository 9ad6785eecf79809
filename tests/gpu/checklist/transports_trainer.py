"""Run as a script with a folder and a number of bytes: publish such a version, then offer it as standard input says.

Each line names a transport, which is then the only one on offer. Prints one JSON line when the version is published and
one when it is offered.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offering import WeightOffers
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import RawTensor, TensorLayout
from seamlessflow_workers.weights.transports.file.sending import weights_publish
from tests.fixtures.trainer_harness import JOB
from tests.gpu.checklist.checking import stopwatch

VERSION = 1
SHAPE = (8192, 2048)  # of each tensor
TENSOR_BYTES = 2 * SHAPE[0] * SHAPE[1]


class MadeTensors:
    """Bfloat16 tensors of one random block, each with its number at the beginning; made when asked for."""

    def __init__(self, num_bytes: int) -> None:
        """`num_bytes`: of all tensors together, a multiple of TENSOR_BYTES."""
        assert num_bytes % TENSOR_BYTES == 0, f"{num_bytes} is no multiple of {TENSOR_BYTES}"
        self.num_bytes = num_bytes
        self._numbers = {f"model.layers.{n}.mlp.up_proj.weight": n for n in range(num_bytes // TENSOR_BYTES)}
        values = np.random.default_rng(0).normal(0, 0.02, size=SHAPE).astype(np.float32)
        self._block = (values.view(np.uint32) >> 16).astype(np.uint16)  # rounded towards zero

    def layouts(self) -> Mapping[str, TensorLayout]:
        return dict.fromkeys(self._numbers, TensorLayout("BF16", SHAPE, TENSOR_BYTES))

    def tensors(self, names: Sequence[str]) -> Mapping[str, RawTensor]:
        return {name: self._made(self._numbers[name]) for name in names}

    def block(self) -> bytearray:
        """Return the bytes that all tensors have behind their first value, which is their number as an integer."""
        return bytearray(self._block.tobytes())

    def _made(self, number: int) -> RawTensor:
        block = self._block.copy()
        block[0, 0] = number  # so small that it is finite in bfloat16
        return RawTensor("BF16", SHAPE, block.data.cast("B"), TENSOR_BYTES)


def main(versions: Path, num_bytes: int) -> None:
    shards = SealedShards()
    with stopwatch() as watched:
        published = weights_publish(
            versions,
            MadeTensors(num_bytes),
            job_id=JOB,
            version=VERSION,
            parent_version=0,
            dtype="bfloat16",
            sealed=shards,
        )
    print(json.dumps({"seconds": watched(), "bytes": published.num_bytes}), flush=True)
    offers: WeightOffers | None = None
    for line in sys.stdin:
        if offers is not None:
            offers.close()
        offers = _offered(versions, WeightTransport(line.strip()), shards, published.manifest_sha256)
        print(json.dumps({"offered": line.strip()}), flush=True)


def _offered(
    versions: Path, transport: WeightTransport, shards: SealedShards, manifest_sha256: str
) -> WeightOffers:
    offers = WeightOffers(versions, transport)
    offers.offer(shards.copy(), version=VERSION, manifest_sha256=manifest_sha256)
    return offers


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
