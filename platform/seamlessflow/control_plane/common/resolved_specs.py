"""The parsed spec of each job, kept by every process.

A spec does not change once its job is submitted. So a process validates it once for each job, and a heartbeat or a
scheduling cycle neither reads the column nor parses it again.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from seamlessflow.core.job_spec import JobSpec, job_spec_parse
from seamlessflow.core.sizing.job_needs import JobNeeds, job_needs
from seamlessflow.core.sizing.model_shape import ModelShape

# The least recently used are forgotten. More than run at once, or each scheduling cycle would read them anew; a spec
# takes a few tens of KiB.
MAX_JOBS = 2048
# Takes ids of jobs; returns those that exist, with the stored JSON of their spec and of their model's shape.
ReadSpecs = Callable[[Sequence[UUID]], Iterable[tuple[UUID, Mapping[str, Any], Mapping[str, Any] | None]]]


@dataclass(frozen=True, slots=True)
class ResolvedSpec:
    """A parsed spec. `document` is the stored JSON that workers receive; do not change it. `needs`: the memory that its
    model needs, if that is known."""

    spec: JobSpec
    document: Mapping[str, Any]
    needs: JobNeeds | None = None


class ResolvedSpecs:
    """The specs of the jobs that were used most recently. Safe to use from several threads."""

    def __init__(self, max_jobs: int = MAX_JOBS) -> None:
        self._max_jobs = max_jobs
        self._kept: OrderedDict[UUID, ResolvedSpec] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, job_ids: Iterable[UUID], read: ReadSpecs) -> dict[UUID, ResolvedSpec]:
        """Return the specs of jobs. `read` is called once, with the jobs that are not kept, if any. Raises
        InvalidJobSpec.
        """
        with self._lock:
            kept = {job_id: self._touch(job_id) for job_id in job_ids}
        missing = [job_id for job_id, resolved in kept.items() if resolved is None]
        found = (
            {}
            if not missing
            else {job_id: _resolved(document, shape) for job_id, document, shape in read(missing)}
        )
        with self._lock:
            self._kept.update(found)
            while len(self._kept) > self._max_jobs:
                self._kept.popitem(last=False)
        return {**{job_id: resolved for job_id, resolved in kept.items() if resolved is not None}, **found}

    def _touch(self, job_id: UUID) -> ResolvedSpec | None:
        resolved = self._kept.get(job_id)
        if resolved is not None:
            self._kept.move_to_end(job_id)
        return resolved


def _resolved(document: Mapping[str, Any], shape: Mapping[str, Any] | None) -> ResolvedSpec:
    spec = job_spec_parse(document)
    needs = None if shape is None else job_needs(spec, msgspec.convert(shape, ModelShape))
    return ResolvedSpec(spec, document, needs)


RESOLVED_SPECS = ResolvedSpecs()
