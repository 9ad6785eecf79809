"""Waits for the folder of a published version, and proves it once for all engines of the machine's phase.

It takes a reference and returns the folder once its files are complete (they are renamed when whole). Invariant: a
folder is returned only after its manifest was checked.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from seamlessflow.core.protocol.worker import WeightsReference
from seamlessflow_workers.phases.files import FilesMissing, MachineFiles
from seamlessflow_workers.phases.watched import ChildFailure
from seamlessflow_workers.weights.manifest import WeightsReadError
from seamlessflow_workers.weights.transports.file.receiving import weights_check

WEIGHTS_POLL_S = 0.01


class WeightsFolder:
    """One per child. `is_over`: no task waits any more; `on_awaiting` is called when a wait begins and ends."""

    def __init__(
        self, files: MachineFiles, *, is_over: Callable[[], bool], on_awaiting: Callable[[bool], None]
    ) -> None:
        self._files = files
        self._is_over = is_over
        self._on_awaiting = on_awaiting
        self._proven: tuple[WeightsReference, Path] | None = None  # the last one
        self._lock = asyncio.Lock()

    async def find(self, weights: WeightsReference) -> Path | None:
        """Return the weights' folder once it exists; None if no task waits any more. Raises ChildFailure."""
        async with self._lock:
            if self._proven is not None and self._proven[0] == weights and self._proven[1].is_dir():
                return self._proven[1]
            try:
                folder = await self._appears(weights)
                if folder is None:
                    return None
                await asyncio.to_thread(weights_check, folder, version=weights.version)
            except FilesMissing as error:
                raise ChildFailure(
                    f"the weights of version {weights.version} did not appear: {error}"
                ) from error
            except WeightsReadError as error:
                raise ChildFailure(
                    f"the weights of version {weights.version} are not complete: {error}"
                ) from error
            self._proven = (weights, folder)
            return folder

    async def _appears(self, weights: WeightsReference) -> Path | None:
        fetching = asyncio.create_task(self._files.pin("weights", weights.uri))
        try:
            await asyncio.sleep(0)  # files that are there already take no longer
            while not fetching.done():
                if self._is_over():
                    return None
                self._on_awaiting(True)
                await asyncio.wait({fetching}, timeout=WEIGHTS_POLL_S)
            return fetching.result()
        finally:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
            self._on_awaiting(False)
