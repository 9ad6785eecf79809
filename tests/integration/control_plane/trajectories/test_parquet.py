"""Trajectories as Parquet: the tokens of each node, and an export before retention deletes them."""

import asyncio
import io
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zstandard
from django.db import connection
from django.utils import timezone

from seamlessflow.control_plane.storage.services import retention as services
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast
from tests.fixtures.stored_files import job_folder
from tests.integration.control_plane.storage.test_retention import (
    TOKENS,
    background_run,
    delete,
    ended_job,
    nodes_make,
    num_nodes,
    of_job,
)

pytestmark = pytest.mark.django_db(transaction=True)


def read(answer: Any) -> Any:
    async def whole() -> bytes:
        return b"".join([chunk async for chunk in answer])

    assert answer.status_code == 200
    return pq.read_table(io.BytesIO(asyncio.run(whole())))


def test_retention_writes_parquet_files_before_it_deletes(cast: Cast) -> None:
    job = ended_job(cast)
    session = nodes_make(job)
    shown = show_id(IdKind.JOB, job.id)
    before = {name: read(cast.owner.call("GET", f"jobs/{shown}/trajectories/{name}.parquet"))
              for name in ("sessions", "nodes")}  # fmt: skip

    background_run()

    assert num_nodes(job) == 0
    for name, table in before.items():
        kept = cast.owner.call("GET", f"jobs/{shown}/trajectories/{name}.parquet")
        assert read(kept).equals(table), name
    assert before["nodes"].column("token_ids").to_pylist() == [[5, 7]] * 3
    assert before["sessions"].column("session").to_pylist() == [show_id(IdKind.SESSION, session.id)]
    assert before["sessions"].column("reward").to_pylist() == [1.0]


def test_no_row_is_deleted_while_its_parquet_file_cannot_be_written(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ended_job(cast)
    nodes_make(job)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("seamlessflow.control_plane.storage.services.exports.parquet_write", full)
        background_run()
    assert num_nodes(job) == 3

    services.removals_run(now=timezone.now())
    assert num_nodes(job) == 0
    assert (job_folder(job.id) / "trajectories" / "nodes.parquet").is_file()


def test_no_parquet_is_written_for_deletions_by_hand_or_if_the_policy_forbids_it(cast: Cast) -> None:
    by_hand, by_policy = ended_job(cast, ago=timedelta(hours=1)), ended_job(cast, name="other")
    for job in (by_hand, by_policy):
        nodes_make(job)
    services.policy_edit(project=None, changes={"trajectories_to_parquet": 0}, reset=[], author="an operator")
    delete(cast.owner, of_job(by_hand, "trajectories"))
    background_run()

    for job in (by_hand, by_policy):
        assert num_nodes(job) == 0
        shown = show_id(IdKind.JOB, job.id)
        answer = cast.owner.call("GET", f"jobs/{shown}/trajectories/nodes.parquet")
        assert answer.status_code == 410
    other = cast.owner.call("GET", f"jobs/{shown}/trajectories/tokens.csv")
    assert (other.status_code, b"sessions.parquet, nodes.parquet" in other.content) == (404, True)


def test_parquet_contains_the_tokens_of_each_node_with_version_and_mask(cast: Cast) -> None:
    job = ended_job(cast, ago=timedelta(hours=1))
    session = nodes_make(job)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO trajectory_prompt (id, project_id, job_id, digest, num_tokens, token_ids) "
            "VALUES (gen_random_uuid(), %s, %s, %s, 2, %s) RETURNING id",
            [job.project_id, job.id, b"digest", TOKENS],
        )
        ((prompt,),) = cursor.fetchall()
        logprobs = zstandard.compress(np.array([-0.5, -1.5], dtype="<f4").tobytes())
        mask = np.packbits([True, False]).tobytes()
        rows: list[list[Any]] = [
            [3, None, 0, prompt, None, None, None, None],
            [4, 3, 2, None, TOKENS, logprobs, [0, 3, 1, 4], mask],
        ]
        for values in rows:
            cursor.execute(
                "INSERT INTO trajectory_node (month, session_id, project_id, job_id, node_index, parent_index, kind, "
                "prompt_id, token_ids, logprobs, version_spans, loss_mask, num_tokens, turn_id) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 2, gen_random_uuid())",
                [session.month, session.id, job.project_id, job.id, *values],
            )

    path = f"jobs/{show_id(IdKind.JOB, job.id)}/trajectories/nodes.parquet"
    root, answer = read(cast.owner.call("GET", path)).to_pylist()[3:]

    told = ("kind", "parent", "token_ids", "logprobs", "versions", "is_trainable")
    assert [root[name] for name in told] == ["root", None, [5, 7], None, None, None]
    assert [answer[name] for name in told] == ["sampled", 3, [5, 7], [-0.5, -1.5], [3, 4], [True, False]]
    assert cast.outsider.call("GET", path).status_code == 404
