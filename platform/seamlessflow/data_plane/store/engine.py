"""An engine as the engine table has it: what the store reads and what turns choose from."""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Engine:
    """A routable front, as the table has it."""

    phase_id: UUID
    job_id: UUID
    endpoint: str
    version: int
    token: str
    num_slots: int  # sequences it decodes at once
    machine: str = ""
    is_behind: bool = False  # it has been told to serve a newer version than it serves
    is_too_old: bool = False  # what it samples now could no longer be trained
