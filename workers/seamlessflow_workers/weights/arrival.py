"""How a version came to an engine, and what may be wrong with what came."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.sealed_shards import SealedShards


class WeightsError(ValueError):
    """The offered weights do not fit the model; nothing was changed."""


@dataclass(slots=True)
class Arrival:
    """How a version came, and where it can be read until `close`."""

    folder: Path
    transport: WeightTransport
    num_bytes: int = 0
    seconds: float = 0.0
    fallback: str = ""  # why it is the files after all
    _shards: SealedShards | None = field(default=None, repr=False)

    def close(self) -> None:
        if self._shards is not None:
            self._shards.close()
            self._shards = None
            shutil.rmtree(self.folder, ignore_errors=True)
