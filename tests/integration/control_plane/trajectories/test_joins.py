"""Clean joins over REST: of a session, of a group's sessions, and of a job, on random trees written as gateways do."""

import json
import random
from collections import Counter
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.utils import timezone

from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.trajectories.selectors.joins import job_joins
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import Cast
from tests.fixtures.forests import ForestShape, WrittenForest, forest_write

pytestmark = pytest.mark.django_db(transaction=True)
NUM_SESSIONS = 3


def written(job: Job, **shape: int) -> WrittenForest:
    address = connection.settings_dict
    url = f"postgresql://{address['USER']}@/{address['NAME']}?host={address['HOST']}&port={address['PORT']}"
    return async_to_sync(forest_write)(
        url, project_id=job.project_id, job_id=job.id, shape=ForestShape(NUM_SESSIONS, **shape)
    )


def got(cast: Cast, path: str) -> Any:
    response = cast.member.call("GET", path)
    assert response.status_code == 200, response.content
    return json.loads(response.content)


@pytest.mark.parametrize("seed", range(3))
def test_a_job_has_the_joins_of_its_sessions_together(cast: Cast, seed: int) -> None:
    job = cast.job()
    forest = written(job, num_nodes=120, seed=seed)
    unsettle(forest, random.Random(seed))

    group = got(cast, f"groups/{show_id(IdKind.GROUP, forest.group_id)}")["sessions"]
    single = [got(cast, f"sessions/{show_id(IdKind.SESSION, session)}") for session in forest.session_ids]
    summary = got(cast, f"jobs/{show_id(IdKind.JOB, job.id)}/summary")["joins"]

    assert [session["joins"] for session in group] == [session["joins"] for session in single]
    causes = sum((Counter(session["joins"]["causes"]) for session in group), Counter[str]())
    assert {"repeat", "history"} <= set(causes)
    assert summary == {
        "num_clean": sum(session["joins"]["num_clean"] for session in group),
        "num_turns": sum(session["joins"]["num_turns"] for session in group),
        "causes": dict(causes),
        "num_conversations": sum(session["joins"]["num_conversations"] for session in group),
    }
    assert summary["num_conversations"] > 0
    assert summary["num_clean"] + causes.total() == summary["num_turns"]


def unsettle(forest: WrittenForest, draw: random.Random) -> None:
    """Make some answers partial, some the repetition of an earlier turn, and some siblings within a turn."""
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT session_id, node_index FROM trajectory_node WHERE kind = 2 AND session_id = ANY(%s)
               ORDER BY session_id, node_index""",
            [list(forest.session_ids)],
        )
        for session, index in cursor.fetchall():
            change = draw.choice(["kept", "kept", "partial", "repeated", "sibling"])
            if change == "partial":
                cursor.execute(
                    "UPDATE trajectory_node SET is_partial = true WHERE session_id = %s AND node_index = %s",
                    [session, index],
                )
            elif change in ("repeated", "sibling"):
                cursor.execute(
                    """INSERT INTO trajectory_node (month, session_id, node_index, project_id, job_id, parent_index,
                                                    kind, num_tokens, turn_id)
                       SELECT month, session_id, node_index + 1000, project_id, job_id, parent_index, kind, num_tokens,
                              CASE WHEN %s THEN turn_id ELSE gen_random_uuid() END
                       FROM trajectory_node WHERE session_id = %s AND node_index = %s""",
                    [change == "sibling", session, index],
                )


def test_joins_are_unknown_where_trajectories_were_deleted(cast: Cast) -> None:
    job = cast.job()
    forest = written(job, num_nodes=12)
    assert job_joins(job)["num_turns"] > 0
    Job.objects.filter(id=job.id).update(
        trajectories_deleted_at=timezone.now(), kept_summary={"num_turns": 3}
    )

    group = got(cast, f"groups/{show_id(IdKind.GROUP, forest.group_id)}")

    assert [session["joins"] for session in group["sessions"]] == [None] * NUM_SESSIONS
