"""One fault, from the job it affects to what its clients, rows and events say afterwards.

It takes a world and returns a `Finding`: sentences about what is wrong. A fault's own code submits
jobs, breaks something, repairs it, and says what it required. The trial waits for the jobs' ends
and checks the whole history.
"""

import contextlib
import hashlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from seamlessflow.client import ApiError
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.types.ids import IdKind, parse_id
from tests.acceptance.conftest import calculator_spec
from tests.benchmarks.faults.checks import CHECKS
from tests.benchmarks.faults.history import Notes, history_read
from tests.benchmarks.faults.world import World

NUM_UPDATES = 40
UNDER_WAY_AT_VERSION = 3
START_WITHIN_S = 180.0
OVER_WITHIN_S = 600.0
POLL_S = 0.1
MAX_SAID = 6
log = logging.getLogger(__name__)
Result = TypeVar("Result")


@dataclass(slots=True)
class Trial:
    world: World
    notes: Notes = field(default_factory=Notes)
    jobs: list[str] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)  # of jobs that end otherwise than the fault's
    faults: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)

    def require(self, pins: bool, otherwise: str) -> None:
        if not pins:
            self.faults.append(otherwise)

    def eventually(
        self, probe: Callable[[], Result], *, within_s: float, what: str
    ) -> tuple[Result | None, float]:
        """Return the first truthy value, and after how many seconds it came; after `within_s` this
        counts as a fault."""
        began_s = time.monotonic()
        while time.monotonic() - began_s < within_s:
            if value := probe():
                return value, time.monotonic() - began_s
            time.sleep(POLL_S)
        self.faults.append(f"{what} did not happen within {within_s:g} s")
        return None, within_s

    def spec(self, *, num_updates: int = NUM_UPDATES, **train: Any) -> dict[str, Any]:
        return calculator_spec(self.world.models, num_updates=num_updates, **train)

    def submit(
        self, spec: Mapping[str, Any], *, key: str = "", timeout_s: float = 30.0
    ) -> httpx.Response | None:
        """Request a job once and record the answer; return None if there is none."""
        key = key or str(uuid.uuid4())
        headers = {"Authorization": f"Bearer {self.world.token}", "Idempotency-Key": key}
        try:
            answer = httpx.post(
                f"{self.world.web_url}/api/v1/jobs", json=dict(spec), headers=headers, timeout=timeout_s
            )
        except httpx.TransportError:
            self.notes.note("submit", key, is_done=None)
            return None
        is_unknown = answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
        self.notes.note("submit", key, is_done=None if is_unknown else answer.is_success)
        if answer.is_success:
            self.jobs.append(answer.json()["id"])
        return answer

    def accepted(self, spec: Mapping[str, Any]) -> str:
        """Return the id of a job that must be accepted."""
        answer = self.submit(spec)
        assert answer is not None, "nobody answers"
        answer.raise_for_status()
        return str(answer.json()["id"])

    def under_way(self, spec: Mapping[str, Any] | None = None, *, version: int = UNDER_WAY_AT_VERSION) -> str:
        """Return the id of a job that has trained for a few updates."""
        job_id = self.accepted(spec or self.spec())
        self.eventually(
            lambda: self.version(job_id) >= version, within_s=START_WITHIN_S, what=f"version {version}"
        )
        return job_id

    def job(self, job_id: str) -> dict[str, Any] | None:
        """Return the job, or None while nobody answers."""
        try:
            with self.world.client() as client:
                return client.job_get(job_id)
        except (ApiError, httpx.HTTPError):
            return None

    def version(self, job_id: str) -> int:
        job = self.job(job_id)
        return int(job["latest_version"]) if job else -1

    def state(self, job_id: str) -> str:
        job = self.job(job_id)
        return str(job["state"]) if job else ""

    def events(self, job_id: str, kind: str) -> list[tuple[str, str]]:
        """Return state and reason of a job's events of this kind."""
        with self.world.database() as connection:
            rows = connection.execute(
                "SELECT to_state, reason FROM common_event WHERE job_id = %s AND kind = %s ORDER BY id",
                [parse_id(IdKind.JOB, job_id), kind],
            ).fetchall()
        return [(str(state), str(reason)) for state, reason in rows]

    def failed_phases(self, job_id: str) -> list[str]:
        return [reason for state, reason in self.events(job_id, "phase.state") if state == "failed"]

    def processes(self, *words: str, under: str | None = None) -> list[psutil.Process]:
        """Wait for at least one such process and return all of them."""
        found, _ = self.eventually(
            lambda: self.world.find(*words, under=under), within_s=60, what=f"a process {' '.join(words)}"
        )
        return found or []

    def cancel(self, job_id: str) -> None:
        with self.world.client() as client:
            client.job_edit(job_id, "cancel", reason="seen")


@dataclass(frozen=True, slots=True)
class Fault:
    """`number` is the number in the matrix, with a letter for its variants; `ends` is the state in
    which its jobs end."""

    number: str
    title: str
    happen: Callable[[Trial], None]
    ends: str = "completed"
    without: frozenset[str] = frozenset()  # checks that this fault makes meaningless


@dataclass(frozen=True, slots=True)
class Finding:
    fault: Fault
    faults: Sequence[str]
    figures: Sequence[str]
    took_s: float


def tried(world: World, fault: Fault) -> Finding:
    began_s = time.monotonic()
    trial = Trial(world)
    try:
        fault.happen(trial)
    except Exception as error:
        log.exception("%s %s broke off", fault.number, fault.title)
        trial.faults.append(f"it broke off: {type(error).__name__}: {error}")
    for job_id in trial.jobs:
        state, _ = trial.eventually(
            lambda job_id=job_id: _end(trial, job_id),  # type: ignore[misc]
            within_s=OVER_WITHIN_S,
            what=f"the end of {job_id}",
        )
        if state is not None and state != trial.ends.get(job_id, fault.ends):
            trial.faults.append(f"the job ended {state}: {(trial.job(job_id) or {}).get('state_reason')}")
        if state is None:
            with contextlib.suppress(ApiError):  # so that the next fault meets machines that are free
                trial.cancel(job_id)
    history = history_read(
        world.urls.database_url, [parse_id(IdKind.JOB, job_id) for job_id in trial.jobs], trial.notes
    )
    for check in CHECKS:
        if check.__name__ not in fault.without:
            trial.faults += check(history)
    trial.faults += files_missing(world, trial.jobs)
    return Finding(fault, trial.faults, trial.figures, time.monotonic() - began_s)


def _end(trial: Trial, job_id: str) -> str:
    state = trial.state(job_id)
    return state if state in TERMINAL_JOB_STATES else ""


def files_missing(world: World, jobs: Sequence[str]) -> list[str]:
    """Check that what the database calls published exists completely."""
    if not jobs:
        return []
    with world.database() as connection:
        rows = connection.execute(
            """SELECT job_id, version, uri, manifest_sha256 FROM policies_policyversion
               WHERE job_id = ANY(%s) AND deleted_at IS NULL AND version > 0""",
            [[parse_id(IdKind.JOB, job_id) for job_id in jobs]],
        ).fetchall()
    return [
        f"version {version} of {str(job)[-8:]} is not whole: {why}"
        for job, version, uri, digest in rows
        if (why := _wrong_with(Path(httpx.URL(str(uri)).path), str(digest)))
    ]


def _wrong_with(folder: Path, manifest_sha256: str) -> str:
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        return f"{manifest} is missing"
    body = manifest.read_bytes()
    if hashlib.sha256(body).hexdigest() != manifest_sha256:
        return "its manifest is another one"
    for name, entry in json.loads(body)["shards"].items():
        file = folder / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != entry["sha256"]:
            return f"{name} is missing or damaged"
    return ""


def said(finding: Finding, *, most: int = MAX_SAID) -> str:
    """Print something for a person to read while the matrix runs."""
    found = finding.faults
    more = f" and {len(found) - most} more" if len(found) > most else ""
    figures = f" ({'; '.join(finding.figures)})" if finding.figures else ""
    lines = "".join(f"\n    {sentence}" for sentence in found[:most])
    return (
        f"faults: {finding.fault.number} {finding.fault.title}: {len(found) or 'no'} found"
        f"{figures}, {finding.took_s:.0f} s{lines}{more}\n"
    )
