"""The pools that a project may use."""

from uuid import UUID

import pytest

from seamlessflow.core.types.pools import OPEN_POOL, pools_usable

OURS, THEIRS = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize(
    "grants, usable",
    [
        ({OPEN_POOL: []}, {OPEN_POOL}),
        ({OPEN_POOL: [THEIRS]}, set()),
        ({OPEN_POOL: [THEIRS, OURS]}, {OPEN_POOL}),
        ({"gpus": []}, set()),
        ({"gpus": [OURS], "theirs": [THEIRS], OPEN_POOL: []}, {"gpus", OPEN_POOL}),
    ],
)
def test_a_project_may_use_what_it_is_granted_and_the_open_pool(
    grants: dict[str, list[UUID]], usable: set[str]
) -> None:
    assert pools_usable(grants, [OURS]) == usable
