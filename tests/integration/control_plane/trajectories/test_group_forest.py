"""The forest of a group: as bytes over REST, and as recorded nodes over the socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import redis
from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.db import connection, connections
from django.http import HttpResponse
from pytest_django import Settings

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.live.feeder import Feeder
from seamlessflow.control_plane.trajectories.models import RolloutGroup, Session
from seamlessflow.control_plane.trajectories.selectors.forests import (
    COLUMNS,
    forest_page,
    forest_sessions,
    session_tokens,
)
from seamlessflow.core.protocol.live_events import WATCHED_KEY
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast
from tests.fixtures.forests import ForestShape, WrittenForest, forest_write
from tests.fixtures.services import ValkeyUrls
from tests.fixtures.tiny_text import write_tiny_text
from tests.integration.control_plane.live.test_live_socket import Browser, feeder_make, tick

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
async def empty_broker(embedded_valkey: ValkeyUrls, settings: Settings) -> AsyncIterator[None]:
    settings.EVENTS_URL = embedded_valkey.events
    client = redis.Redis.from_url(embedded_valkey.events)
    client.flushdb()
    yield
    client.close()
    await sync_to_async(connections.close_all)()


async def write(job: Job, **shape: int) -> WrittenForest:
    return await forest_write(
        database_url(), project_id=job.project_id, job_id=job.id, shape=ForestShape(**shape)
    )


def database_url() -> str:
    address = connection.settings_dict
    return f"postgresql://{address['USER']}@/{address['NAME']}?host={address['HOST']}&port={address['PORT']}"


def decoded(answer: HttpResponse) -> tuple[dict[str, Any], bytes]:
    """Return the header and arrays of a binary answer."""
    assert answer.status_code == 200, answer.content
    end = 4 + int.from_bytes(answer.content[:4], "little")
    return json.loads(answer.content[4:end]), answer.content[end:]


def columns_of(header: dict[str, Any], raw: bytes) -> dict[str, Any]:
    arrays = np.frombuffer(raw, dtype="<i4").reshape(len(COLUMNS), header["num_nodes"])
    columns: dict[str, Any] = dict(zip(header["columns"], arrays, strict=True))
    columns["mean_logprob"] = columns["mean_logprob"].view("<f4")
    return columns


async def test_a_forest_is_sent_as_columns_that_match_the_rows(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)(algorithm={"advantage_norm": "mean"})
    forest = await write(job, num_sessions=3, num_nodes=90)
    shown = show_id(IdKind.GROUP, forest.group_id)
    header, raw = decoded(await sync_to_async(cast.member.call)("GET", f"groups/{shown}/forest"))
    columns = columns_of(header, raw)
    rows = await sync_to_async(_rows)(
        "SELECT s.slot, n.node_index, coalesce(n.parent_index, -1), n.kind, n.num_tokens, n.min_version, n.max_version,"
        " n.num_handovers, n.mean_logprob FROM trajectory_node n JOIN trajectory_session s ON s.id = n.session_id"
        " ORDER BY s.slot, n.node_index"
    )
    assert header["num_nodes"] == forest.num_nodes == len(rows)
    names = ("session", "index", "parent", "kind", "num_tokens")
    for name, values in zip(names, list(zip(*rows, strict=True))[: len(names)], strict=True):
        np.testing.assert_array_equal(columns[name], values)
    np.testing.assert_array_equal(columns["marks"] >> 4, [row[7] for row in rows])
    means = [np.nan if row[8] is None else row[8] for row in rows]
    np.testing.assert_array_equal(columns["mean_logprob"], np.array(means, dtype="<f4"))
    roots = columns["prompt"][columns["kind"] == 0]
    assert len(set(roots.tolist())) == 1
    assert roots[0] != 0
    assert [row["advantage"] for row in header["sessions"]] == pytest.approx([-1 / 3, 2 / 3, -1 / 3])
    assert all(len(spans) > 2 or handovers for _, _, spans, handovers in header["details"])
    assert header["details"]


def _rows(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


async def test_pages_of_a_forest_have_no_gaps_or_repetitions(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    forest = await write(job, num_sessions=3, num_nodes=90)
    shown = show_id(IdKind.GROUP, forest.group_id)
    seen, query = [], "limit=17"
    while True:
        header, raw = decoded(await sync_to_async(cast.member.call)("GET", f"groups/{shown}/forest?{query}"))
        columns = columns_of(header, raw)
        seen += list(zip(columns["session"].tolist(), columns["index"].tolist(), strict=True))
        if header["next"] is None:
            break
        query = f"limit=17&session={header['next']['session']}&node={header['next']['node']}"
    assert len(seen) == forest.num_nodes
    assert seen == sorted(set(seen))


async def test_a_truncated_session_says_that_more_nodes_follow(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    forest = await write(job, num_sessions=1, num_nodes=5_040)
    path = f"sessions/{show_id(IdKind.SESSION, forest.session_ids[0])}"
    seen: list[int] = []
    query = ""
    while True:
        body = json.loads((await sync_to_async(cast.member.call)("GET", f"{path}{query}")).content)
        seen += [node["node_index"] for node in body["nodes"]]
        assert len(body["nodes"]) <= 5_000
        if not body.get("truncated"):
            break
        query = f"?from_node={body['next_node']}"
    assert len(seen) == forest.num_nodes, "cut without a word"
    assert seen == list(range(forest.num_nodes))
    assert body["next_node"] is None


async def test_tokens_come_in_pages_whatever_node_they_belong_to(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    forest = await write(job, num_sessions=1, num_nodes=12, long_branch=1000)
    session = await Session.objects.aget(id=forest.session_ids[0])
    whole = await database_sync_to_async(session_tokens)(session=session, node=0, start=0)
    assert whole.next is None
    assert [count for _, _, count in whole.parts][:2] == [60, 1000]
    ids, logprobs, node, start = b"", b"", 0, 0
    while True:
        page = await database_sync_to_async(session_tokens)(session=session, node=node, start=start, limit=64)
        ids, logprobs = ids + page.token_ids, logprobs + page.logprobs
        if page.next is None:
            break
        node, start = page.next
    assert (ids, logprobs) == (whole.token_ids, whole.logprobs)
    sampled = np.frombuffer(whole.logprobs, dtype="<f4")
    assert np.isnan(sampled[:60]).all()
    assert (sampled[60:1060] <= 0).all()


async def test_a_vocabulary_matches_what_the_tokenizer_decodes(cast: Cast, tmp_path: Path) -> None:
    from seamlessflow.data_plane.turns.rendering.model_text import model_text_load

    text = model_text_load(write_tiny_text(tmp_path / "model"))
    job = await database_sync_to_async(cast.job)()
    header, raw = decoded(
        await sync_to_async(cast.member.call)("GET", f"jobs/{show_id(IdKind.JOB, job.id)}/vocabulary")
    )
    ends = [0, *np.frombuffer(raw, dtype="<u4", count=header["num_tokens"]).tolist()]
    pieces = raw[4 * header["num_tokens"] :]
    said = "Zwölf plus 34 = 46 🙂 <tool_call>"
    ids = np.frombuffer(text.encode(said), dtype="<i4").tolist()
    assert b"".join(pieces[ends[i] : ends[i + 1]] for i in ids).decode() == said


async def test_another_project_sees_neither_forest_nor_tokens_nor_growth(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    forest = await write(job)
    group, session = (
        show_id(IdKind.GROUP, forest.group_id),
        show_id(IdKind.SESSION, forest.session_ids[0]),
    )
    for path in (
        f"groups/{group}/forest",
        f"sessions/{session}/tokens",
        f"sessions/{session}/nodes/0",
        f"jobs/{show_id(IdKind.JOB, job.id)}/vocabulary",
    ):
        assert (await sync_to_async(cast.outsider.call)("GET", path)).status_code == 404, path
    async with Browser() as browser:
        await browser.say(token=cast.outsider.secret, subscribe=[f"group:{group}"])
        assert (await browser.hear())["kind"] == "error"


async def test_bad_numbers_are_named(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    forest = await write(job)
    shown = show_id(IdKind.GROUP, forest.group_id)
    for query, field in (
        ("node=-1", "node"),
        ("limit=0", "limit"),
        ("session=ses_x", "session"),
        ("node=1e9", "node"),
    ):
        answer = await sync_to_async(cast.member.call)("GET", f"groups/{shown}/forest?{query}")
        assert answer.status_code == 400
        assert json.loads(answer.content)["errors"][0]["field"] == field


async def test_a_watched_forest_reports_new_nodes_and_outcomes(
    cast: Cast, embedded_valkey: ValkeyUrls
) -> None:
    job = await database_sync_to_async(cast.job)(algorithm={"advantage_norm": "mean"})
    forest = await write(job, num_sessions=2, num_nodes=8)
    await Session.objects.filter(id=forest.session_ids[1]).aupdate(state="open", reward=None, closed_at=None)
    feeder = await feeder_make()
    name = f"group:{show_id(IdKind.GROUP, forest.group_id)}"
    async with Browser() as browser:
        await browser.say(token=cast.owner.secret, subscribe=[name])
        snapshot = await browser.hear()
        assert snapshot["topic"] == name
        assert [row["num_nodes"] for row in snapshot["data"]["sessions"]] == [4, 4]
        await tick(feeder)
        first = await browser.hear()
        assert len(first["data"]["sessions"]) == 2
        assert "nodes" not in first["data"]
        await sync_to_async(_copy_node)(forest.session_ids[1])
        await Session.objects.filter(id=forest.session_ids[1]).aupdate(state="closed", reward=1.0)
        await tick(feeder)
        delta = await browser.hear()
        before, row = delta["data"]["sessions"]
        # An outcome changes the baseline of the group, and so the other session's advantage.
        assert (before["num_nodes"], before["advantage"], row["advantage"]) == (4, -0.5, 0.5)
        assert (row["num_nodes"], row["state"]) == (5, "closed")
        (node,) = delta["data"]["nodes"]
        assert (node["session"], node["index"], node["kind"]) == (row["id"], 4, 2)
        assert await tick(feeder) == 0
    broker = redis.Redis.from_url(embedded_valkey.events)
    broker.delete(WATCHED_KEY)
    broker.close()
    await RolloutGroup.objects.filter(id=forest.group_id).aupdate(state="batched")
    assert await tick(feeder) == 0
    feeder.close()


def _copy_node(session_id: UUID) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO trajectory_node (month, session_id, node_index, project_id, job_id, parent_index, kind,
                   num_tokens, token_ids, logprobs, version_spans, messages, turn_id)
               SELECT month, session_id, 4, project_id, job_id, 2, kind, num_tokens, token_ids, logprobs, version_spans,
                   messages, turn_id
               FROM trajectory_node WHERE session_id = %s AND node_index = 3""",
            [session_id],
        )


async def test_many_sockets_on_one_group_are_one_watch(cast: Cast, embedded_valkey: ValkeyUrls) -> None:
    job = await database_sync_to_async(cast.job)()
    forest = await write(job)
    name = f"group:{show_id(IdKind.GROUP, forest.group_id)}"
    async with Browser(cast.owner.user) as first, Browser(cast.member.user) as second:
        for browser in (first, second):
            await browser.say(subscribe=[name])
            assert (await browser.hear())["kind"] == "snapshot"
        feeder: Feeder = await database_sync_to_async(Feeder)()
        await asyncio.sleep(0.05)  # the second request reaches the broker after its snapshot
        assert feeder._publisher.watched() == {forest.group_id: 2}
        feeder.close()


async def test_the_only_page_of_an_empty_group_is_empty(cast: Cast) -> None:
    job = await database_sync_to_async(cast.job)()
    forest = await write(job, num_sessions=0)
    group = await RolloutGroup.objects.select_related("job").aget(id=forest.group_id)
    sessions = (await database_sync_to_async(forest_sessions)([group]))[group.id]
    page = await database_sync_to_async(forest_page)(sessions)
    assert (len(page.columns["index"]), page.next) == (0, None)
