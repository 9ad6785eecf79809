"""Shows the dashboard with rows that a test invents: no platform runs, so each figure on a page has
exactly one correct value.

It takes a job's rows as REST and the live socket would send them, and opens a page on this job. The
browser gets the built files from disk, and its REST answers and frames from this module.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import Browser, Page, Route, WebSocketRoute

Row = dict[str, Any]

ORIGIN = "http://dashboard.test"
JOB_ID = "job_01m815vwcneyzb0cz138xvgf86"
MACHINE_ID = "mac_01m815vwcneyzb0cz138xvgf86"
BUILT = Path(__file__).parents[2] / "platform/seamlessflow/control_plane/dashboard/static/dashboard"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
EPOCH = "made-up"
MINUTE_MS = 60_000
PATIENCE_MS = 60_000
PRODUCTIVE = {"serving", "training", "running_agents"}


def iso(ms: float) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


@dataclass
class MadeUpJob:
    """The rows of one job on one machine. Times are epoch milliseconds."""

    now: int
    metrics: dict[str, dict[int, float]] = field(default_factory=dict)
    rewards: list[Row] = field(default_factory=list)
    phases: list[Row] = field(default_factory=list)
    intervals: list[Row] = field(default_factory=list)
    ledger: list[Row] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    num_live_phases: int = 60
    reward_mean: float | None = None
    reward_curve: list[tuple[int, float]] = field(default_factory=list)
    is_over: bool = False
    _sockets: list[WebSocketRoute] = field(default_factory=list)
    _seq: int = 1

    def tell(self, **data: Any) -> None:
        """Send a delta on the job's topic."""
        self._seq += 1
        for socket in self._sockets:
            socket.send(json.dumps(self._frame(f"job:{JOB_ID}", "delta", data, self._seq)))

    @contextmanager
    def open(self, browser: Browser, path: str, *, width: int = 1280, height: int = 900) -> Iterator[Page]:
        if not (BUILT / "index.html").exists():
            pytest.skip("the dashboard is not built (make frontend)")
        context = browser.new_context(viewport={"width": width, "height": height}, timezone_id="UTC")
        page = context.new_page()
        page.clock.set_fixed_time(self.now)
        page.route("**/*", self._answer)
        page.route_web_socket("**/ws/live", self._listen)
        page.goto(ORIGIN + path)
        page.locator("h1").wait_for(timeout=PATIENCE_MS)  # a busy machine takes long to run the page's code
        yield page
        context.close()

    def _listen(self, socket: WebSocketRoute) -> None:
        self._sockets.append(socket)
        socket.on_message(lambda text: self._subscribed(socket, json.loads(text)))

    def _subscribed(self, socket: WebSocketRoute, message: Row) -> None:
        snapshots = {
            "machines": (
                "machines",
                {"machines": self._machines(), "intervals": self.intervals, "edits": []},
            ),
            "jobs": ("jobs:default", {"jobs": [self._job()]}),
            f"job:{JOB_ID}": (f"job:{JOB_ID}", self._job_topic()),
        }
        for name in message.get("subscribe", []):
            topic, data = snapshots[name]
            socket.send(json.dumps(self._frame(topic, "snapshot", data, self._seq)))

    def _frame(self, topic: str, kind: str, data: Row, seq: int) -> Row:
        return {
            "v": 1, "topic": topic, "epoch": EPOCH, "seq": seq, "kind": kind, "at": self.now, "data": data,
        }  # fmt: skip

    def _job_topic(self) -> Row:
        live = [phase for phase in self.phases if phase["ended_at"] is None]
        ended = [phase for phase in self.phases if phase["ended_at"] is not None]
        return {
            "jobs": [self._job()],
            "phases": live + ended[: self.num_live_phases],
            "events": [],
            "groups": [],
            "metrics": [],
            "rewards": self.rewards,
            "tokens_per_s": 0.0,
        }

    def _job(self) -> Row:
        done = self.rewards[-1]["batch"] if self.rewards else 0
        started = self.now - 30 * MINUTE_MS
        return {
            "id": JOB_ID, "name": "a-job-with-a-rather-long-name", "project": "default", "owner": "ann",
            "state": "completed" if self.is_over else "running", "state_reason": "", "waiting_reason": "",
            "desired": "run", "paused_by": None, "latest_version": done, "best_version": None, "num_updates_done": done,
            "num_updates": 5000, "created_at": started, "started_at": started,
            "ended_at": self.now if self.is_over else None,
        }  # fmt: skip

    def _machines(self) -> list[Row]:
        return [self._machine()]

    def _machine(self) -> Row:
        return {
            "id": MACHINE_ID, "name": "alpha", "tags": ["rollout", "train"], "labels": ["host=alpha"], "pool": "",
            "cost": 1.0, "generation": 1, "is_cordoned": False, "is_draining": False, "is_healthy": True,
            "health": "healthy", "reason": "", "role": "rollout", "phase_state": "active", "num_agents": 0,
            "version": 1, "open_state": "", "open_cause": "", "open_since": None, "quarantine": None,
            "capabilities": {},
        }  # fmt: skip

    def _answer(self, route: Route) -> None:
        address = urlparse(route.request.url)
        if address.path.startswith("/api/"):
            query = {name: values[-1] for name, values in parse_qs(address.query).items()}
            body = self._rest(address.path.removeprefix("/api/v1"), query)
            status = 404 if body is None else 200
            route.fulfill(status=status, content_type="application/json", body=json.dumps(body or {}))
        elif address.path.startswith("/static/dashboard/"):
            file = BUILT / address.path.removeprefix("/static/dashboard/")
            route.fulfill(body=file.read_bytes(), content_type=TYPES.get(file.suffix, "text/plain"))
        else:
            route.fulfill(body=(BUILT / "index.html").read_bytes(), content_type="text/html")

    def _rest(self, path: str, query: Row) -> Row | None:
        if found := re.fullmatch(r"/phases/(\w+)/logs", path):
            return self._log(found[1], int(query.get("offset", 0)))
        answers = {
            "/me": lambda: {"username": "ann", "is_staff": True, "projects": [MY_PROJECT], "scopes": []},
            "/jobs": lambda: self._page([self._item()], query),
            "/machines": lambda: self._page([], query),
            "/tokens": lambda: self._page([], query),
            f"/jobs/{JOB_ID}": self._detail,
            f"/jobs/{JOB_ID}/metrics": lambda: self._metrics(query),
            f"/jobs/{JOB_ID}/ledger": self._ledger,
            f"/jobs/{JOB_ID}/phases": lambda: self._page([_told(phase) for phase in self.phases], query),
        }
        if path in answers:
            return answers[path]()
        return self._page([], query) if path.startswith(f"/jobs/{JOB_ID}/") else None

    def _metrics(self, query: Row) -> Row:
        names = [name for name in query.get("names", "").split(",") if name] or list(self.metrics)
        columns = {}
        for name in names:
            points = sorted(self.metrics.get(name, {}).items())
            steps, values = [step for step, _ in points], [value for _, value in points]
            columns[name] = {
                "first_step": steps, "step": steps, "count": [1] * len(steps), "min": values, "max": values,
                "mean": values, "value": values,
            }  # fmt: skip
        return {
            "metrics": columns, "bucket_width": 1, "first_step": 0, "last_step": 0, "truncated": False, "next": None,
        }  # fmt: skip

    def _ledger(self) -> Row:
        totals = self.ledger[0]["totals"] if self.ledger else []
        working = [total["share"] for total in totals if total["state"] in PRODUCTIVE]
        share = sum(working) if totals else None
        return {
            "machines": self.ledger, "totals": totals, "productive_share": share, "occupancy": None,
            "waiting_per_slot": None,
        }  # fmt: skip

    def _page(self, rows: list[Row], query: Row) -> Row:
        limit, offset = int(query.get("limit", 50)), int(query.get("offset", 0))
        return {
            "results": rows[offset : offset + limit],
            "count": len(rows),
            "limit": limit,
            "offset": offset,
        }

    def _item(self) -> Row:
        job = self._job()
        return job | {
            "created_by": "ann", "created_at": iso(job["created_at"]), "started_at": iso(job["started_at"]),
            "ended_at": None, "progress": {"num_updates_done": 0, "num_updates": 5000, "reward_mean": self.reward_mean},
            "reward_curve": self.reward_curve,
        }  # fmt: skip

    def _detail(self) -> Row:
        return self._item() | {
            "dataset": None,
            "spec": {},
            "spec_submitted": {},
            "machines": [],
            "generation": 1,
            "priority": 0,
        }

    def _log(self, phase_id: str, offset: int) -> Row:
        text = self.logs.get(phase_id, "")
        return {
            "streams": ["out"], "stream": "out", "text": text[offset:], "next_offset": len(text), "offset": offset,
            "truncated": False, "gap": None,
        }  # fmt: skip


MY_PROJECT = {"slug": "default", "name": "default", "role": "owner", "may_write": True}


def _told(phase: Row) -> Row:
    """Return a phase as REST shows it."""
    ended_at = phase["ended_at"]
    return phase | {
        "machine_id": MACHINE_ID, "leased_at": iso(phase["leased_at"]), "active_at": None, "draining_at": None,
        "ended_at": None if ended_at is None else iso(ended_at),
    }  # fmt: skip


def reward_row(batch: int, *, at: int, mean: float = 0.5) -> Row:
    return {
        "batch": batch, "mean": mean, "spread": 0.1, "low": mean, "high": mean, "num_groups": 4, "tokens": 12.0,
        "turns": 2.0, "at": at,
    }  # fmt: skip


def phase_row(number: int, *, leased_at: int, is_over: bool = True) -> Row:
    return {
        "id": f"pha_{number:026}", "machine": "alpha", "role": "rollout", "state": "ended" if is_over else "active",
        "reason": "", "fence": number, "desired_version": 1, "served_version": 1, "engines": [],
        "num_batches": None, "gang_member": None, "leased_at": leased_at,
        "ended_at": leased_at + 900 if is_over else None,
    }  # fmt: skip


def interval_row(number: int, state: str, cause: str, start: float, end: float) -> Row:
    return {"id": number, "machine": "alpha", "state": state, "cause": cause, "start": start, "end": end}
