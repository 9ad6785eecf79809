"""Checks a tasks file: JSON Lines, one object a line. Takes its path; returns the number of tasks and their domains."""

from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.core.algorithms.section import StageSection

MAX_LINE_BYTES = 1024 * 1024
MAX_TASKS = 10_000_000
MAX_DOMAINS = 10_000
MAX_DOMAIN_CHARS = 200
NUM_DOMAINS_SHOWN = 10

_OTHER_KINDS = {  # by the bytes with which they begin
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "compressed with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with Zstandard",
    b"PK\x03\x04": "a ZIP archive",
    b"ARROW1": "an Arrow file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
    b"[": "one JSON array",
    b"version https://git-lfs": "a Git LFS pointer, not the file itself",
    b"<": "an HTML or XML page",
}


@dataclass(frozen=True, slots=True)
class TasksFacts:
    num_tasks: int
    domains: frozenset[str]  # "" for tasks that name none


def tasks_check(path: Path, *, field: str = "environment.tasks") -> TasksFacts:
    """Read all tasks and skip blank lines. Raises ApplicationError naming `field` and the first bad line."""
    num_tasks = 0
    domains = set()
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if number == 1:
                line = line.removeprefix(BOM_UTF8)
                _kind_check(line, field)
            if len(line) > MAX_LINE_BYTES:
                raise field_error(field, f"line {number} is longer than {MAX_LINE_BYTES} bytes")
            if line.strip():
                domains.add(_domain(_task(line, number, field), number, field))
                num_tasks += 1
                if len(domains) > MAX_DOMAINS:
                    raise field_error(field, f"the file names more than {MAX_DOMAINS} domains")
    if not 1 <= num_tasks <= MAX_TASKS:
        raise field_error(field, f"the file holds {num_tasks} tasks; accepted: 1 to {MAX_TASKS}")
    return TasksFacts(num_tasks, frozenset(domains))


def stages_check(stages: Sequence[StageSection], facts: TasksFacts) -> None:
    """Refuse a stage without tasks: it would stop the job later. Raises ApplicationError naming stage and domain."""
    for number, stage in enumerate(stages):
        for domain in stage.domains:
            if domain not in facts.domains:
                known = sorted(facts.domains - {""})
                shown = ", ".join(known[:NUM_DOMAINS_SHOWN]) + (
                    ", …" if len(known) > NUM_DOMAINS_SHOWN else ""
                )
                raise field_error(
                    f"algorithm.stages.{number}.domains",
                    f"no task of environment.tasks has the domain {domain!r}; "
                    + (f"accepted: {shown}" if known else "its tasks name none"),
                )


def _domain(task: dict[str, object], number: int, field: str) -> str:
    domain = str(task.get("domain", ""))
    if len(domain) > MAX_DOMAIN_CHARS:
        raise field_error(
            field, f"line {number} names a domain of {len(domain)} characters; accepted: {MAX_DOMAIN_CHARS}"
        )
    return domain


def _kind_check(start: bytes, field: str) -> None:
    """Refuse a file of another kind by the kind's name. Raises ApplicationError."""
    kind = next((kind for mark, kind in _OTHER_KINDS.items() if start.startswith(mark)), None)
    if kind is not None:
        raise field_error(field, f"the file is {kind}; accepted: JSON Lines in UTF-8, one object a line")


def _task(line: bytes, number: int, field: str) -> dict[str, object]:
    try:
        task = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise field_error(field, f"line {number} is not JSON: {error}") from error
    if not isinstance(task, dict):
        raise field_error(field, f"line {number} is not a JSON object")
    if b"\\u0000" in line:  # this also refuses a line in which the backslash itself is escaped
        raise field_error(field, f"line {number} contains a NUL character, which no field accepts")
    return task
