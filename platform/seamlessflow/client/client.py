"""A small synchronous client of `/api/v1` for the CLI and for CI scripts.

Takes a base URL and an API token; returns decoded JSON. A refusal (RFC 9457) becomes ApiError with one sentence.
"""

import hashlib
import re
import tarfile
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from seamlessflow.client.downloads import file_receive, folder_made, tar_receive
from seamlessflow.client.errors import ApiError, Json, refusal_read
from seamlessflow.client.fleet import FleetCalls
from seamlessflow.client.logs import LogCalls
from seamlessflow.client.paths import segment
from seamlessflow.client.stops import JobStopped, needs_attention
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES, JobState

# A large model is unpacked and checked before the answer comes.
UPLOAD_READ_TIMEOUT_S = 3600.0
# A model in a GGUF file is converted before the answer comes; the platform gives that up after ten minutes.
SUBMIT_READ_TIMEOUT_S = 900.0
SUBMIT_PAUSES_S = (0.5, 2.0)
_PASSING_STATUSES = (502, 503, 504)  # from a proxy in front of a web process that restarts


class Client(FleetCalls, LogCalls):
    """A client of the REST API, with one API token."""

    def __init__(self, base_url: str, token: str, *, timeout_s: float = 30.0) -> None:
        """Raises ApiError if the address or the token is malformed."""
        self.base_url = base_url.rstrip("/")
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ApiError("the API token contains characters that no token has", status=401)
        try:
            self._http = httpx.Client(
                base_url=f"{self.base_url}/api/v1/",
                headers={"Authorization": f"Bearer {token}"},
                timeout=timeout_s,
                transport=httpx.HTTPTransport(retries=3),
            )
        except httpx.InvalidURL as error:
            raise ApiError(f"{base_url!r} is not an address ({error})", status=400) from error
        self._upload_timeout = httpx.Timeout(timeout_s, read=UPLOAD_READ_TIMEOUT_S)
        self._submit_timeout = httpx.Timeout(timeout_s, read=SUBMIT_READ_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def job_submit(
        self, spec: Mapping[str, Any], *, project: str | None = None, key: str | None = None
    ) -> Json:
        """Submit a job. If an answer is lost, the request is repeated with the same key, so only one job is created.

        `project`: its slug, which only a caller in several projects has to name. `key`: the same key and spec give the
        same job again; by default each call creates one.
        """
        asked: dict[str, Any] = {
            "json": dict(spec),
            "headers": {"Idempotency-Key": key or str(uuid.uuid4())},
            "params": {"project": project} if project else {},
            "timeout": self._submit_timeout,
        }
        for pause_s in SUBMIT_PAUSES_S:
            try:
                return self._send("POST", "jobs", **asked)
            except ApiError as error:
                if error.status is not None and error.status not in _PASSING_STATUSES:
                    raise
                time.sleep(pause_s)
        return self._send("POST", "jobs", **asked)

    def job_get(self, job_id: str) -> Json:
        return self._send("GET", f"jobs/{segment(job_id)}")

    def job_list(self, *, state: str | None = None, needs_attention: bool = False) -> Iterator[Json]:
        """Yield every job, newest first, page by page; `needs_attention`: only those that the platform paused."""
        attention = {"needs_attention": "true"} if needs_attention else {}
        return self._pages("jobs", **({"state": state} if state else {}), **attention)

    def job_edit(self, job_id: str, verb: str, *, reason: str = "") -> Json:
        """Cancel, pause or resume, as `verb` says. Repeating a request changes nothing."""
        return self._send("POST", f"jobs/{segment(job_id)}/{verb}", json={"reason": reason})

    def job_stage(self, job_id: str, stage: str, *, reason: str = "") -> Json:
        """Switch the tasks of a job to one of its stages."""
        return self._send("POST", f"jobs/{segment(job_id)}/stage", json={"stage": stage, "reason": reason})

    def job_part(self, job_id: str, part: str, **params: Any) -> Json:
        """Return `part`: versions, evaluations, metrics, events, phases, groups, ledger or audit."""
        return self._send("GET", f"jobs/{segment(job_id)}/{part}", params=params)

    def job_metrics(self, job_id: str, names: Sequence[str] = (), **params: Any) -> Json:
        """Return a job's metrics in buckets (all of them without `names`); `params` are those of the operation
        `job_metrics`."""
        return self.job_part(job_id, "metrics", **({"names": ",".join(names)} if names else {}), **params)

    def job_metric_points(self, job_id: str, names: Sequence[str] = ()) -> dict[str, dict[str, list[Any]]]:
        """Return every stored point by metric, as columns `step` and `value`."""
        columns: dict[str, dict[str, list[Any]]] = {}
        cursor: dict[str, str] = {}
        while True:
            page = self.job_metrics(job_id, names, points="exact", **cursor)
            for name, points in page["metrics"].items():
                column = columns.setdefault(name, {"step": [], "value": []})
                for key, values in column.items():
                    values += points[key]
            if not page["truncated"]:
                return columns
            cursor = {"cursor": page["next"]}

    def version_export(self, job_id: str, version: int, folder: Path, *, form: str = "model") -> None:
        """Write a version as a new folder, whole or not at all: `form` is model (for transformers) or adapter (for
        peft).

        Raises FileExistsError, ApiError.
        """
        with folder_made(folder) as made:
            path = f"jobs/{segment(job_id)}/versions/{version}/export"
            tar_receive(self._http, path, made, params={"form": form})

    def trajectories_export(self, job_id: str, folder: Path) -> None:
        """Write a job's trajectories as a new folder of Parquet files, whole or not at all.

        Raises FileExistsError, ApiError.
        """
        with folder_made(folder) as made:
            for name in ("sessions.parquet", "nodes.parquet"):
                with (made / name).open("wb") as file:
                    file_receive(self._http, f"jobs/{segment(job_id)}/trajectories/{name}", file)

    def session_get(self, session_id: str, *, tokens: bool = False) -> Json:
        """Return a session's trajectory tree; with `tokens`, also the ids and logprobs of each node."""
        return self._send(
            "GET", f"sessions/{segment(session_id)}", params={"tokens": "true"} if tokens else {}
        )

    def job_watch(
        self, job_id: str, *, every_s: float = 1.0, stop: threading.Event | None = None
    ) -> Iterator[Json]:
        """Yield the job again and again until it is terminal or `stop` is set.

        If the platform cannot be reached, wait for up to two minutes.
        """
        pause = stop or threading.Event()
        unreachable_since: float | None = None
        while not pause.is_set():
            try:
                job = self.job_get(job_id)
            except ApiError as error:
                if error.status is not None and error.status < 500:
                    raise
                unreachable_since = unreachable_since or time.monotonic()
                if time.monotonic() - unreachable_since > 120:
                    raise
                pause.wait(every_s)
                continue
            unreachable_since = None
            yield job
            if job["state"] in TERMINAL_JOB_STATES:
                return
            pause.wait(every_s)

    def job_wait(self, job_id: str) -> Json:
        """Wait until the job completes and return it. Raises JobStopped."""
        job: Json = {}
        for job in self.job_watch(job_id):
            if needs_attention(job):
                break
        if job["state"] != JobState.COMPLETED:
            raise JobStopped(job)
        return job

    def machine_list(self) -> list[Json]:
        return list(self._pages("machines"))

    def machine_get(self, name: str) -> Json:
        """Return a machine by name or identifier."""
        machine = next((m for m in self.machine_list() if name in (m["name"], m["id"])), None)
        if machine is None:
            raise ApiError(f"no machine is named {name!r}", status=404)
        return machine

    def machine_edit(
        self, machine_id: str, *, changes: Mapping[str, Any], reason: str, generation: int
    ) -> Json:
        """Retag, cordon or drain. Raises ApiError (412) if the machine is no longer at `generation`."""
        return self._send(
            "PATCH",
            f"machines/{segment(machine_id)}",
            json={**changes, "reason": reason},
            headers={"If-Match": f'"{generation}"'},
        )

    def machine_release(self, machine_id: str, *, reason: str, device: str | None = None) -> Json:
        """End the quarantine of a machine, or the cordon of its device. Raises ApiError (409) if there is none."""
        body = {"reason": reason} | ({} if device is None else {"device": device})
        return self._send("POST", f"machines/{segment(machine_id)}/release", json=body)

    def machines_preview(self, edits: Mapping[str, Mapping[str, Any]]) -> Json:
        """Return what these edits, by machine identifier, would do to each running thing; changes nothing."""
        body = [{"machine_id": machine_id, **changes} for machine_id, changes in edits.items()]
        return self._send("POST", "machines/preview", json={"edits": body})

    def machine_events(self, machine_id: str, *, limit: int = 50) -> list[Json]:
        """Return edits of a machine, newest first."""
        return list(
            self._send("GET", f"machines/{segment(machine_id)}/events", params={"limit": limit})["results"]
        )

    def machine_ledger(self, machine_id: str, *, since: str, until: str) -> Json:
        """Return the machine's ledger between two moments (RFC 3339): totals by state and cause, and the intervals."""
        return self._send(
            "GET", f"machines/{segment(machine_id)}/ledger", params={"since": since, "until": until}
        )

    def machine_register(self, name: str, tags: Sequence[str]) -> Json:
        """Register a machine and return it with its token, which is shown only once. For operators."""
        return self._send("POST", "machines", json={"name": name, "tags": list(tags)})

    def me(self) -> Json:
        """Return the token's user and scopes, and the projects that it can access."""
        return self._send("GET", "me")

    def token_list(self) -> list[Json]:
        return list(self._pages("tokens"))

    def token_create(
        self,
        name: str,
        *,
        project: str | None = None,
        scopes: Sequence[str] | None = None,
        expires_in_days: int | None = None,
        is_installation: bool = False,
    ) -> Json:
        """Create a token. Only this answer shows its `secret`."""
        asked = {"project": project, "scopes": scopes, "expires_in_days": expires_in_days}
        body = {field: value for field, value in asked.items() if value is not None}
        if is_installation:
            body["installation"] = True
        return self._send("POST", "tokens", json={"name": name, **body})

    def token_revoke(self, token_id: str) -> None:
        self._send("DELETE", f"tokens/{segment(token_id)}")

    def member_list(self, project: str) -> list[Json]:
        return list(self._pages(_members(project)))

    def member_add(self, project: str, username: str, *, role: str, is_invited: bool = False) -> Json:
        """Add a member. If an account is created, `sign_in_link` in the answer opens a browser session once."""
        return self._send(
            "POST", _members(project), json={"username": username, "role": role, "invite": is_invited}
        )

    def member_change(self, project: str, username: str, *, role: str) -> Json:
        return self._send("PATCH", f"{_members(project)}/{segment(username)}", json={"role": role})

    def member_remove(self, project: str, username: str) -> None:
        """Remove a member and revoke their tokens of the project. Raises ApiError (409) for the last owner."""
        self._send("DELETE", f"{_members(project)}/{segment(username)}")

    def storage(self) -> list[Json]:
        """Return bytes by project and kind."""
        return list(self._pages("storage"))

    def storage_jobs(self, *, limit: int = 50) -> list[Json]:
        """Return jobs by disk use, the largest first."""
        return list(self._send("GET", "storage/jobs", params={"limit": limit})["results"])

    def storage_policy(
        self,
        where: Mapping[str, str],
        *,
        settings: Mapping[str, int | None] | None = None,
        reset: Sequence[str] = (),
    ) -> Json:
        """Return the retention policy, after any changes. `where`: `{"project": slug}`, `{"installation": "true"}` or
        nothing."""
        if not settings and not reset:
            return self._send("GET", "storage/policy", params=where)
        body = {"settings": dict(settings or {}), "reset": list(reset)}
        return self._send("PATCH", "storage/policy", params=where, json=body)

    def storage_plan(self, project: str | None = None) -> Json:
        """Return the removals that the policy would make now."""
        return self._send("GET", "storage/plan", params={"project": project} if project else {})

    def storage_delete(
        self,
        items: Sequence[Mapping[str, Any]],
        *,
        dry_run: bool = False,
        reason: str = "",
        project: str | None = None,
    ) -> Json:
        """Delete all `items` or none: each has `kind` and `id`, versions and checkpoints also `number`."""
        body = {"items": [dict(item) for item in items], "dry_run": dry_run, "reason": reason}
        return self._send(
            "POST", "storage/deletions", params={"project": project} if project else {}, json=body
        )

    def upload(self, path: Path, *, project: str | None = None) -> str:
        """Upload a file, or a folder as a tar that is unpacked there. Returns its `artifact://` reference.

        `project`: its slug, which only a caller in several projects has to name.

        Content that the project already has, by its digest, is not sent again. Links are followed, because the folders
        of a Hugging Face cache contain nothing else.
        """
        if path.is_file():
            with path.open("rb") as stream:
                return self._upload(path.name, stream, project, unpack=False)
        with tempfile.TemporaryFile() as stream:
            with tarfile.open(fileobj=stream, mode="w", dereference=True) as archive:
                for file in sorted(p for p in path.rglob("*") if p.is_file()):
                    archive.add(file, arcname=str(file.relative_to(path)), filter=_content_only)
            stream.seek(0)
            return self._upload(f"{path.name}.tar", stream, project, unpack=True)

    def _pages(self, path: str, **params: Any) -> Iterator[Json]:
        offset = 0
        while True:
            page = self._send("GET", path, params={"offset": offset, **params})
            yield from page["results"]
            offset += len(page["results"])
            if not page["results"] or offset >= page["count"]:
                return

    def _upload(self, name: str, stream: Any, project: str | None, *, unpack: bool) -> str:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        of_project = {"project": project} if project else {}
        known = self._send("GET", "uploads", params={"sha256": digest, **of_project})["results"]
        for artifact in known:
            if artifact["is_archive"] == unpack:
                return str(artifact["uri"])
        stream.seek(0)
        params = of_project | ({"unpack": "true"} if unpack else {})
        files = {"file": (name, stream)}
        answer = self._send("POST", "uploads", files=files, params=params, timeout=self._upload_timeout)
        return str(answer["uri"])

    def _send(self, method: str, path: str, **arguments: Any) -> Json:
        try:
            response = self._http.request(method, path, **arguments)
        except httpx.TransportError as error:
            raise ApiError(
                f"{self.base_url} cannot be reached ({error}); start the platform with `seamlessflow up`"
            ) from error
        if not response.is_success:
            raise refusal_read(response)
        try:
            return dict(response.json()) if response.content else {}
        except (ValueError, TypeError) as error:
            raise ApiError(
                f"the answer of {response.url} is not JSON; is this the address of the platform?"
            ) from error


def _content_only(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Drop owners and times, so that the same files give the same tar."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime, member.mode = 0, 0o644
    return member


def _members(project: str) -> str:
    return f"projects/{segment(project)}/members"
