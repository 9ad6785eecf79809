"""What became of an item: a line for people, and the summary of a part as JSON.

The summary is written anew after every item, so a run that is cut short leaves all that it found.
"""

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from tests.gpu.checklist.plan import Part

_GIB = 1 << 30


class State(StrEnum):
    PASSED = "pass"
    FAILED = "FAIL"
    SKIPPED = "skip"


@dataclass(frozen=True, slots=True)
class Result:
    name: str
    state: State
    seconds: float
    limit_s: float
    card_bytes: int | None = (
        None  # most in use on a card, above what was before; None: there is no card to ask
    )
    host_bytes: int = 0  # most in use by its processes: anonymous and shared memory
    message: str = ""
    not_tried: list[str] = field(default_factory=list)  # what it left out, each with the reason
    figures: dict[str, Any] = field(default_factory=dict)

    def line(self, part: str) -> str:
        card = "-" if self.card_bytes is None else f"{self.card_bytes / _GIB:.2f} GiB"
        said = "; ".join(filter(None, [self.message, *(f"not tried: {what}" for what in self.not_tried)]))
        return (
            f"part {part}  {self.name:<12}{self.state:<6}{self.seconds:6.1f} s of {self.limit_s:3.0f} s   "
            f"card {card:>10}   host {self.host_bytes / _GIB:6.2f} GiB   {said}"
        ).rstrip()


def summary_write(path: Path, part: Part, device: str, results: list[Result]) -> None:
    summary = {
        "part": part.name,
        "device": device,
        "limit_s": part.limit_s,
        "seconds": round(sum(result.seconds for result in results), 1),
        "passed": not any(result.state is State.FAILED for result in results),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "items": [
            {**asdict(result), "proves": item.proves}
            for result, item in zip(results, part.items, strict=False)
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=2) + "\n")
