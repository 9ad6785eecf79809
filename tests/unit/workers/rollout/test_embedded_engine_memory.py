"""What an engine staged is given back to the system once it is in place."""

from pathlib import Path

import numpy as np
import psutil

from seamlessflow_workers.rollout.engine.engine import RETURNED_FROM_BYTES, EmbeddedEngine
from seamlessflow_workers.rollout.serving.served_engine import EngineSettings
from tests.fakes.fake_engine import FakeRunner, Faults

NUM_BYTES = 2 * RETURNED_FROM_BYTES
BLOCK_BYTES = 2**20


class _Staged:
    """Blocks like the tensors of an adapted model. What is left between them keeps them from being given back."""

    num_bytes = NUM_BYTES

    def __init__(self, left: list[object]) -> None:
        self._blocks = []
        for _ in range(NUM_BYTES // BLOCK_BYTES):
            self._blocks.append(np.ones(BLOCK_BYTES, dtype=np.uint8))
            left.append(np.ones(4096, dtype=np.uint8))

    def apply(self) -> None:
        """Nothing is computed with them."""


class _Runner(FakeRunner):
    def __init__(self) -> None:
        super().__init__(num_rows=1, max_model_len=16, vocab_size=8, faults=Faults())
        self._left: list[object] = []

    def stage_weights(self, path: Path) -> _Staged:
        return _Staged(self._left)


async def test_staged_weights_leave_no_memory_behind(tmp_path: Path) -> None:
    # From now on, glibc takes smaller blocks from what it keeps, as it does in an engine after its first update.
    np.ones(8 * BLOCK_BYTES, dtype=np.uint8)
    engine = EmbeddedEngine(_Runner(), EngineSettings(model_name="fake"))
    engine.start()
    before = psutil.Process().memory_info().rss
    try:
        for version in range(3):
            await engine.load_weights(tmp_path)
            await engine.set_weight_version(str(version))
        held = psutil.Process().memory_info().rss - before
    finally:
        await engine.stop()
    assert engine.weight_version == "2"
    assert held < NUM_BYTES / 2
