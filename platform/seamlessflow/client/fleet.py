"""Calls of the client about one fleet for many jobs: the queue, priorities, shares and pools."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from seamlessflow.client.errors import Json
from seamlessflow.client.paths import segment


class FleetCalls(ABC):
    """Calls of `Client`, which sends the requests."""

    @abstractmethod
    def _send(self, method: str, path: str, **arguments: Any) -> Json: ...

    @abstractmethod
    def _pages(self, path: str, **params: Any) -> Iterator[Json]: ...

    def job_prioritize(self, job_id: str, priority: int, *, reason: str = "") -> Json:
        """Give a job another priority. Raises ApiError (412) if another user edits it at the same moment."""
        path = f"jobs/{segment(job_id)}"
        generation = self._send("GET", path)["generation"]
        body = {"priority": priority, "reason": reason}
        return self._send("PATCH", path, json=body, headers={"If-Match": f'"{generation}"'})

    def queue(self, *, project: str | None = None) -> Iterator[Json]:
        """Yield the jobs that wait for machines, in the order in which they are served, page by page."""
        return self._pages("queue", **({"project": project} if project else {}))

    def share_list(self) -> list[Json]:
        """Return the entitlement of each project and its machines."""
        return list(self._pages("shares"))

    def share_edit(self, project: str, *, changes: Mapping[str, Any], reason: str) -> Json:
        """Change the weight or the quota of a project. For operators."""
        return self._send("PATCH", f"shares/{segment(project)}", json={**changes, "reason": reason})

    def pool_list(self) -> list[Json]:
        return list(self._pages("pools"))

    def pool_edit(self, pool: str, project: str, *, is_granted: bool, reason: str = "") -> None:
        """Grant a pool to a project, or end the grant. Repeating it changes nothing. For operators."""
        path = f"pools/{segment(pool)}/grants/{segment(project)}"
        if is_granted:
            self._send("PUT", path, json={"reason": reason})
        else:
            self._send("DELETE", path, params={"reason": reason})
