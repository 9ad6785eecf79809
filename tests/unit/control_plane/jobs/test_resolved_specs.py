"""Each process parses the spec of a job once."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from seamlessflow.control_plane.common.resolved_specs import ResolvedSpecs
from seamlessflow.core.job_spec import InvalidJobSpec, job_spec_parse

DOCUMENT = job_spec_parse(
    {"name": "a job", "model": {"source": "/models/tiny"}, "environment": {"name": "external"}}
).model_dump(mode="json")


class Rows:
    """The stored specs of some jobs; records which were requested."""

    def __init__(self, *job_ids: UUID, document: Mapping[str, Any] = DOCUMENT) -> None:
        self.documents = dict.fromkeys(job_ids, document)
        self.asked: list[Sequence[UUID]] = []

    def read(self, job_ids: Sequence[UUID]) -> list[tuple[UUID, Mapping[str, Any], None]]:
        self.asked.append(job_ids)
        return [(job_id, self.documents[job_id], None) for job_id in job_ids if job_id in self.documents]


def test_specs_are_read_once_and_together() -> None:
    first, second, third = uuid4(), uuid4(), uuid4()
    rows, specs = Rows(first, second, third), ResolvedSpecs()

    assert set(specs.of([first, second], rows.read)) == {first, second}
    assert set(specs.of([first, second, third], rows.read)) == {first, second, third}

    assert rows.asked == [[first, second], [third]]


def test_a_deleted_job_is_left_out() -> None:
    here, gone = uuid4(), uuid4()

    assert set(ResolvedSpecs().of([here, gone], Rows(here).read)) == {here}


def test_the_least_recently_used_spec_is_forgotten() -> None:
    first, second, third = uuid4(), uuid4(), uuid4()
    rows, specs = Rows(first, second, third), ResolvedSpecs(max_jobs=2)
    for job_id in (first, second, first, third, first, second):
        specs.of([job_id], rows.read)

    assert rows.asked == [[first], [second], [third], [second]]


def test_an_invalid_spec_is_not_kept() -> None:
    job_id = uuid4()
    rows, specs = Rows(job_id, document={"name": "no model"}), ResolvedSpecs()
    for _ in range(2):
        with pytest.raises(InvalidJobSpec):
            specs.of([job_id], rows.read)

    assert len(rows.asked) == 2
