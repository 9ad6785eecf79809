"""Carries phase logs to the control plane by offset.

It takes open log files, one per phase, and sends `POST /api/worker/v1/phases/<uuid>/logs?stream=&offset=` with at most
64 KiB, repeatedly until acknowledged. Invariants: it never blocks a child or a phase; if the control plane is away,
logs are only delayed, until rotation drops bytes between a log's head and its newest bytes, which it reports as `lost`;
the server's `next_offset` decides where to continue; at most `NUM_LOGS_MAX` logs wait.
"""

import asyncio
import logging
from dataclasses import dataclass
from uuid import UUID

import aiohttp
import msgspec

from seamlessflow_workers.process.backoff import Backoff
from seamlessflow_workers.process.logs import RotatedFile

CHUNK_BYTES = 65_536
NUM_LOGS_MAX = 64
GATHER_S = 0.25  # lines within it are sent together
TIMEOUT_S = 10.0

log = logging.getLogger(__name__)


class NextOffset(msgspec.Struct, frozen=True):
    next_offset: int


@dataclass(slots=True)
class _Shipment:
    phase_id: UUID
    stream: str
    file: RotatedFile
    offset: int = 0
    is_complete: bool = False  # nothing more will be written


class LogShipper:
    def __init__(self, session: aiohttp.ClientSession, *, control_plane_url: str, token: str) -> None:
        self._session = session
        self._base_url = f"{control_plane_url}/api/worker/v1/phases"
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
        self._shipments: dict[UUID, _Shipment] = {}
        self._written = asyncio.Event()

    def follow(self, phase_id: UUID, *, stream: str, file: RotatedFile) -> None:
        self._shipments[phase_id] = _Shipment(phase_id, stream, file)
        while len(self._shipments) > NUM_LOGS_MAX:
            self._drop(next(iter(self._shipments.values())))
        self._written.set()

    def complete(self, phase_id: UUID) -> None:
        if shipment := self._shipments.get(phase_id):
            shipment.is_complete = True
            self._written.set()

    def notify(self) -> None:
        self._written.set()

    async def run(self) -> None:
        backoff = Backoff(first_s=0.5, longest_s=5.0)
        while True:
            await self._written.wait()
            await asyncio.sleep(GATHER_S)
            self._written.clear()
            try:
                await self.ship_all()
                backoff.reset()
            except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
                log.debug("logs are waiting for the control plane: %s", error)
                self._written.set()
                await asyncio.sleep(backoff.next_s())

    async def ship_all(self) -> None:
        for shipment in list(self._shipments.values()):
            while shipment.offset < shipment.file.end:
                if not await self._ship(shipment):
                    break
            else:
                if shipment.is_complete:
                    self._drop(shipment)

    async def _ship(self, shipment: _Shipment) -> bool:
        """Send one chunk; return False if that did not advance this log."""
        offset, chunk = shipment.file.read(shipment.offset, CHUNK_BYTES)
        async with self._session.post(
            f"{self._base_url}/{shipment.phase_id}/logs",
            params={
                "stream": shipment.stream,
                "offset": str(offset),
                "lost": str(offset - shipment.offset),
            },
            data=chunk,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        ) as response:
            if 400 <= response.status < 500 and response.status not in (401, 429):
                log.warning("the log of phase %s was refused: HTTP %d", shipment.phase_id, response.status)
                self._drop(shipment)
                return False
            response.raise_for_status()
            reply = msgspec.json.decode(await response.read(), type=NextOffset)
        before, shipment.offset = shipment.offset, min(max(reply.next_offset, 0), shipment.file.end)
        return shipment.offset != before

    def _drop(self, shipment: _Shipment) -> None:
        self._shipments.pop(shipment.phase_id, None)
