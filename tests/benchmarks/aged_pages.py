"""Finds every address of the web process that shows something, and measures how long each takes to
answer.

It takes a running web process, the values of the parameters in its addresses, and a browser's
session, and returns by name a call that fetches once. The addresses come from the schema of the
REST API, the admin site's own index and the topics of the socket, so none is forgotten: an address
with an unknown parameter ends the benchmark.
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import yaml

from tests.fixtures.repository import ROOT

Fetch = Callable[[], Awaitable[None]]
API = "/api/v1/"
SCHEMA = ROOT / "api_schema" / "openapi.yaml"
# These are not pages but files that are created anew and sent whole.
DOWNLOADS = frozenset(
    {"/api/v1/jobs/{job_id}/versions/{version}/export", "/api/v1/jobs/{job_id}/trajectories/{table}"}
)
# Requests of the dashboard besides those to the plain address.
QUERIES: Mapping[str, tuple[str, ...]] = {
    "/api/v1/jobs": ("limit=200", "search=tiny", "state=running", "offset=10"),
    "/api/v1/jobs/{job_id}/events": ("subject=job,phase,version", "offset=500&limit=500"),
    "/api/v1/jobs/{job_id}/groups": ("state=batched", "evaluation=1"),
    "/api/v1/jobs/{job_id}/metrics": ("buckets=600", "points=exact"),
    "/api/v1/jobs/{job_id}/phases": ("limit=500",),
    "/api/v1/machines": ("limit=500",),
    "/api/v1/sessions/{session_id}": ("tokens=true",),
    "/api/v1/storage/policy": ("installation=true",),
}
OTHERS = ("/", "/metrics", "/healthz")
_CHANGELIST = re.compile(r'href="(/admin/\w+/\w+/)"')
_ROW = re.compile(r'href="(/admin/\w+/\w+/[^/"]+/change/)[^"]*"')
_SEARCH = 'id="searchbar"'


@dataclass(frozen=True, slots=True)
class Visitor:
    """A client that is signed in as a browser for the admin site, and by token for REST and
    sockets."""

    http: aiohttp.ClientSession
    base_url: str
    token: str
    cookies: Mapping[str, str]  # of a browser that signed in
    ids: Mapping[str, str]  # by parameter of an address

    async def get(self, path: str) -> str:
        """Fetch the page. Raises RuntimeError if the answer is not a page."""
        headers = {"Authorization": f"Bearer {self.token}"} if path.startswith(API) else {}
        cookies = {} if path.startswith(API) else self.cookies
        async with self.http.get(
            self.base_url + path, headers=headers, cookies=cookies, allow_redirects=False
        ) as answer:
            content = await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{path} answers {answer.status}: {content[:500]!r}")
        return content.decode(errors="replace")

    async def snapshot(self, topic: str) -> None:
        """Connect, subscribe and wait for the topic's snapshot."""
        async with self.http.ws_connect(
            f"{self.base_url}/ws/live", origin=self.base_url, max_msg_size=0
        ) as socket:
            await socket.send_json({"token": self.token, "subscribe": [topic]})
            frame = (await socket.receive_str()).partition("\n")[0]
        if '"kind":"snapshot"' not in frame:
            raise RuntimeError(f"{topic}: {frame[:500]}")


def rest_paths(ids: Mapping[str, str]) -> dict[str, str]:
    """Return the path by its displayed name, which has the parameters in braces. Raises KeyError if
    `ids` lacks a parameter."""
    declared: dict[str, Any] = yaml.safe_load(SCHEMA.read_text())["paths"]
    paths: dict[str, str] = {}
    for path, methods in declared.items():
        if "get" in methods and path not in DOWNLOADS:
            for query in ("", *QUERIES.get(path, ())):
                name = f"{path}?{query}" if query else path
                paths[name.removeprefix(API)] = name.format_map(ids)
    return paths


async def pages_of(visitor: Visitor) -> dict[str, Fetch]:
    """Return the pages by their displayed names, which have the parameters in braces."""
    pages = {name: _getter(visitor, path) for name, path in rest_paths(visitor.ids).items()}
    pages |= {path: _getter(visitor, path) for path in OTHERS}
    pages |= await _admin_pages(visitor)
    for topic in ("jobs", "machines", "job:{job_id}", "group:{group_id}"):
        pages[f"socket {topic}"] = _listener(visitor, topic.format_map(visitor.ids))
    return pages


async def _admin_pages(visitor: Visitor) -> dict[str, Fetch]:
    """Return each list, a search for the job in it, and one of its rows."""
    pages: dict[str, Fetch] = {}
    for path in sorted(set(_CHANGELIST.findall(await visitor.get("/admin/")))):
        pages[path] = _getter(visitor, path)
        content = await visitor.get(path)
        if _SEARCH in content:
            pages[f"{path}?q={{job_id}}"] = _getter(visitor, f"{path}?q={visitor.ids['job_id']}")
        if row := _ROW.search(content):
            pages[f"{path}…/change/"] = _getter(visitor, row[1])
    return pages


def _getter(visitor: Visitor, path: str) -> Fetch:
    async def fetch() -> None:
        await visitor.get(path)

    return fetch


def _listener(visitor: Visitor, topic: str) -> Fetch:
    async def fetch() -> None:
        await visitor.snapshot(topic)

    return fetch


async def milliseconds(fetch: Fetch) -> float:
    started_s = time.perf_counter()
    await fetch()
    return (time.perf_counter() - started_s) * 1000
