"""A control plane that speaks the worker contract and nothing else: tests set its orders and read what it received.

    plane = await FakeControlPlane.start()
    plane.order(Role.ROLLOUT, ...); await plane.until_state(phase_id, PhaseState.ACTIVE); await plane.stop()

It also checks that the intervals of the ledger are adjacent, and acknowledges them.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

import msgspec
from aiohttp import web

from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.protocol.worker import (
    Heartbeat,
    HeartbeatReply,
    Interval,
    PhaseOrder,
    PhaseReport,
    WarmProcess,
    WeightsReference,
)
from seamlessflow.core.types.tags import Role
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.tensors import RawTensor
from seamlessflow_workers.weights.transports.file.sending import weights_publish
from tests.fakes.tensors_in_memory import TensorsInMemory

TOKEN = "machine-token"
POLL_S = 0.005
# Where people find the dashboard; machines reach the control plane under another address.
PUBLIC_URL = "https://flow.example.invalid"


def endpoint_of(report: PhaseReport) -> str:
    """Return the endpoint of the phase's first engine."""
    assert report.endpoints
    return report.endpoints[0].endpoint


class FakeControlPlane:
    def __init__(self, *, interval_s: float = 0.2) -> None:
        self.interval_s = interval_s
        self.tags = ["rollout", "train"]
        self.job_id, self.project_id = uuid4(), uuid4()
        self.orders: dict[UUID, PhaseOrder] = {}
        self.warm_processes: list[WarmProcess] = []
        self.released_devices: dict[str, str] = {}
        self.heartbeats: list[Heartbeat] = []
        self.arrivals_s: list[float] = []
        self.intervals: dict[UUID, list[Interval]] = {}
        self.reports: dict[UUID, list[PhaseReport]] = {}
        self.seen_at_s: dict[tuple[UUID, str], float] = {}
        self.logs: dict[UUID, bytearray] = {}
        self.num_concurrent_max = 0
        self._num_concurrent = 0
        self._fence = 0
        self._port = 0

    @classmethod
    async def start(cls, *, interval_s: float = 0.2) -> Self:
        plane = cls(interval_s=interval_s)
        await plane.come_back()
        return plane

    async def come_back(self) -> None:
        app = web.Application()
        app.add_routes(
            [
                web.post("/api/worker/v1/heartbeat", self._heartbeat),
                web.post("/api/worker/v1/phases/{phase_id}/logs", self._log),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]

    async def go_away(self) -> None:
        await self._runner.cleanup()

    stop = go_away

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def reside(
        self,
        role: Role,
        *,
        weights: WeightsReference | None = None,
        job_id: UUID | None = None,
        model_path: str = "/nowhere/model",
        artifact_root: str = "file:///nowhere",
        device_bytes: int = 0,
        usual_device_bytes: int = 0,
        **spec: Any,
    ) -> None:
        self.warm_processes.append(
            WarmProcess(
                job_id=job_id or self.job_id,
                project_id=self.project_id,
                role=role,
                spec={**job_spec(), **spec},
                model_path=model_path,
                weights=weights or WeightsReference(version=0, uri="file:///nowhere/model"),
                artifact_root=artifact_root,
                gateway_url="http://127.0.0.1:1",
                control_plane_url=PUBLIC_URL,
                device_bytes=device_bytes,
                usual_device_bytes=usual_device_bytes,
            )
        )

    def order(
        self, role: Role, *, weights: WeightsReference | None = None, job_id: UUID | None = None
    ) -> PhaseOrder:
        self._fence += 1
        order = PhaseOrder(
            phase_id=uuid4(),
            fence=self._fence,
            role=role,
            job_id=job_id or self.job_id,
            project_id=self.project_id,
            is_draining=False,
            credential="sfp_none",
            front_token=f"sff_{self._fence}",
            weights=weights or WeightsReference(version=0, uri="file:///nowhere/model"),
        )
        self.orders[order.phase_id] = order
        return order

    def change(self, order: PhaseOrder, **changes: Any) -> PhaseOrder:
        changed = msgspec.structs.replace(self.orders[order.phase_id], **changes)
        self.orders[order.phase_id] = changed
        return changed

    def last(self, order: PhaseOrder) -> PhaseReport:
        return self.reports[order.phase_id][-1]

    async def until_state(
        self, order: PhaseOrder, state: PhaseState, *, timeout_s: float = 15.0
    ) -> PhaseReport:
        def has_state() -> bool:
            return any(report.state is state for report in self.reports.get(order.phase_id, []))

        await until(
            has_state,
            what=f"phase is {state}; reports: {self.reports.get(order.phase_id)}",
            timeout_s=timeout_s,
        )
        return next(report for report in self.reports[order.phase_id] if report.state is state)

    async def until_version(self, order: PhaseOrder, version: int) -> PhaseReport:
        await until(lambda: self.last(order).served_version == version, what=f"version {version} is served")
        return self.last(order)

    async def _heartbeat(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401)
        self._num_concurrent += 1
        self.num_concurrent_max = max(self.num_concurrent_max, self._num_concurrent)
        beat = msgspec.json.decode(await request.read(), type=Heartbeat)
        self.arrivals_s.append(time.monotonic())
        self.heartbeats.append(beat)
        stored = self.intervals.setdefault(beat.boot_id, [])
        for interval in beat.intervals:
            if interval.seq >= len(stored):
                assert interval.seq == len(stored), "a gap in the ledger"
                assert not stored or stored[-1].end_s == interval.start_s, "intervals must touch"
                stored.append(interval)
        for report in beat.phases:
            self.reports.setdefault(report.phase_id, []).append(report)
            self.seen_at_s.setdefault((report.phase_id, report.state), time.monotonic())
            if report.state in (PhaseState.ENDED, PhaseState.FAILED):
                self.orders.pop(report.phase_id, None)
        self._num_concurrent -= 1
        reply = HeartbeatReply(
            machine_id=UUID(int=1),
            name="alpha",
            tags=self.tags,
            orders=list(self.orders.values()),
            warm_processes=self.warm_processes,
            released_devices=self.released_devices,
            interval_s=self.interval_s,
            num_intervals_acked=len(stored),
        )
        return web.Response(body=msgspec.json.encode(reply), content_type="application/json")

    async def _log(self, request: web.Request) -> web.Response:
        stored = self.logs.setdefault(UUID(request.match_info["phase_id"]), bytearray())
        offset, chunk = int(request.query["offset"]), await request.read()
        assert len(chunk) <= 65_536
        if offset - int(request.query["lost"]) == len(stored):
            stored += b"\0" * (offset - len(stored)) + chunk
        return web.json_response({"next_offset": len(stored)})


def job_spec() -> dict[str, Any]:
    return {
        "name": "fake",
        "model": {"source": "hub://fake", "max_model_len": 4096},
        "environment": {"name": "external"},
    }


def weights_in(folder: Path, version: int, *, sealed: SealedShards | None = None) -> WeightsReference:
    """Return a complete version; the fake engine does not read it."""
    tensors = TensorsInMemory(a=RawTensor(dtype="F32", shape=(1,), data=bytes(4), num_bytes=4))
    published = weights_publish(
        folder / "versions",
        tensors,
        job_id=UUID(int=7),
        version=version,
        parent_version=0,
        dtype="float32",
        sealed=sealed,
    )
    return WeightsReference(version=version, uri=published.folder.as_uri())


async def until(condition: Callable[[], bool], *, what: str, timeout_s: float = 15.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(POLL_S)
