"""Calls of the client that read logs: those of a job's phases, and those of its sessions."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from seamlessflow.client.errors import Json
from seamlessflow.client.paths import segment


class LogCalls(ABC):
    """Calls of `Client`, which sends the requests."""

    @abstractmethod
    def _send(self, method: str, path: str, **arguments: Any) -> Json: ...

    @abstractmethod
    def _pages(self, path: str, **params: Any) -> Iterator[Json]: ...

    def job_phases(self, job_id: str) -> list[Json]:
        """Return the phases of a job, oldest first."""
        phases = self._pages(f"jobs/{segment(job_id)}/phases")
        return sorted(phases, key=lambda phase: (phase["leased_at"], phase["fence"]))

    def phase_log(self, phase_id: str, offset: int) -> Json:
        """Return a chunk of the output of a phase's processes; read on from its `next_offset`."""
        return self._send("GET", f"phases/{segment(phase_id)}/logs", params={"offset": offset})

    def session_log(self, session_id: str, offset: int) -> Json:
        """Return a chunk of a session's output; read on from its `next_offset`."""
        return self._send("GET", f"sessions/{segment(session_id)}/logs", params={"offset": offset})
