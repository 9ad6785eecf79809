"""Which recorded sessions a job trains on: those that its data section names, of its own project,
fixed at submission."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from django.db import connection
from django.utils import timezone

from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.submission.submit import job_submit
from seamlessflow.control_plane.trajectories.models import DatasetGroup, RolloutGroup, Session
from seamlessflow.core.types.ids import IdKind, show_id
from tests.fixtures.control_plane import SYSTEM, Cast, model_folder

MONTH = date(2026, 11, 1)
NO_BOUND = 10**9


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session as the test created it, so that plain Python can judge it."""

    session_id: UUID
    place: int  # of its job among the sources
    environment: str
    group: UUID
    evaluation: int | None
    index: int
    domain: str
    slot: int
    state: str
    reward: float | None
    num_tokens: int
    versions: tuple[tuple[int, int, bool], ...]  # lowest, highest, partial: of its answers


def record(job: Job, place: int, rng: np.random.Generator, *, num_groups: int) -> list[Recorded]:
    made = []
    common: dict[str, Any] = {"project_id": job.project_id, "job": job}
    for index in range(num_groups):
        evaluation = int(rng.integers(0, 3)) if rng.random() < 0.2 else None
        domain = str(rng.choice(["", "arithmetic", "text"]))
        group = RolloutGroup.objects.create(
            id=new_id(), index=index, evaluation_version=evaluation, size=4, created_at=timezone.now(),
            task={"domain": domain} if domain else {}, **common,
        )  # fmt: skip
        for slot in range(4):
            state = str(rng.choice(["closed"] * 8 + ["open", "failed"]))
            reward = float(rng.choice([-1.0, 0.0, 0.5, 1.0, 1.0])) if state == "closed" else None
            num_tokens = int(rng.integers(1, 5))
            session = Session.objects.create(
                id=new_id(), group=group, month=MONTH, slot=slot, state=state, reward=reward,
                key_digest=new_id().bytes, num_sampled_tokens=num_tokens, opened_at=timezone.now(), **common,
            )  # fmt: skip
            versions = tuple(answer(rng) for _ in range(int(rng.integers(0, 4))))
            for number, (low, high, is_partial) in enumerate(versions):
                node_write(session, number + 1, low, high, is_partial=is_partial)
            made.append(
                Recorded(
                    session.id, place, job.spec["environment"]["name"], group.id, evaluation, index, domain, slot,
                    state, reward, num_tokens, versions,
                )
            )  # fmt: skip
    return made


def answer(rng: np.random.Generator) -> tuple[int, int, bool]:
    low = int(rng.integers(-1, 4))
    return low, low + int(rng.integers(0, 2)), bool(rng.random() < 0.1)


def node_write(session: Session, index: int, low: int, high: int, *, is_partial: bool) -> None:
    row: dict[str, Any] = {
        "month": MONTH, "session_id": session.id, "node_index": index, "project_id": session.project_id,
        "job_id": session.job_id, "parent_index": index - 1, "kind": 2, "num_tokens": 1, "turn_id": new_id(),
        "min_version": low, "max_version": high, "is_partial": is_partial,
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO trajectory_node ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))})",
            list(row.values()),
        )


def outcome(session: Recorded, data: Mapping[str, Any]) -> str | None:
    """Return why a session is left out before ranking, or None if it is not."""
    if session.state == "open":
        return "open"
    if session.reward is None:
        return "failed"
    if session.evaluation is not None and not data.get("with_evaluations"):
        return "evaluation"
    if data.get("environments") and session.environment not in data["environments"]:
        return "environment"
    if data.get("domains") and session.domain not in data["domains"]:
        return "domain"
    lowest, highest = data.get("min_reward", 1.0), data.get("max_reward")
    if (lowest is not None and session.reward < lowest) or (highest is not None and session.reward > highest):
        return "reward"
    whole = [(low, high) for low, high, is_partial in session.versions if not is_partial]
    if not whole or max(high for _, high in whole) < 0:
        return "empty"
    low, high = min(low for low, _ in whole), max(high for _, high in whole)
    if low < data.get("from_version", -NO_BOUND) or high > data.get("to_version", NO_BOUND):
        return "version"
    return None


def chosen_by_hand(
    sessions: list[Recorded], data: Mapping[str, Any]
) -> tuple[list[tuple[UUID, list[UUID]]], Counter[str]]:
    """Return groups in order with their sessions, and how many sessions were left out for which
    reason."""
    left_out: Counter[str] = Counter()
    groups: dict[tuple[Any, ...], list[Recorded]] = {}
    for session in sessions:
        reason = outcome(session, data)
        if reason is not None:
            left_out[reason] += 1
            continue
        evaluation = -1 if session.evaluation is None else session.evaluation
        groups.setdefault((session.place, evaluation, session.index, session.group), []).append(session)
    found = []
    for key in sorted(groups, key=lambda key: key[:3]):
        ranked = sorted(groups[key], key=lambda one: (-(one.reward or 0.0), one.num_tokens, one.slot))
        kept = ranked[: data.get("best_per_group", NO_BOUND)]
        left_out["rank"] += len(ranked) - len(kept)
        found.append((key[3], [one.session_id for one in sorted(kept, key=lambda one: one.slot)]))
    return found, +left_out


def imitation(cast: Cast, *jobs: str, **data: Any) -> dict[str, Any]:
    return {
        "name": "imitation",
        "model": {"source": str(cast.model)},
        "data": {"source": "trajectories", "jobs": list(jobs), **data},
        "algorithm": {"name": "sft"},
    }


def shown(job: Job) -> str:
    return show_id(IdKind.JOB, job.id)


CHOICES: list[dict[str, Any]] = [
    {},
    {"min_reward": None},
    {"min_reward": 0.0, "max_reward": 0.5},
    {"min_reward": None, "best_per_group": 1},
    {"min_reward": None, "best_per_group": 2, "with_evaluations": True},
    {"min_reward": None, "from_version": 1, "to_version": 3},
    {"min_reward": None, "from_version": 0},
    {"domains": ["arithmetic"], "min_reward": 0.0},
    {"environments": ["external"], "min_reward": None, "with_evaluations": True},
    {"groups_per_batch": 3, "num_epochs": 2, "shuffle": False},
]


def test_exactly_the_sessions_that_the_data_section_names_are_selected(cast: Cast) -> None:
    rng = np.random.default_rng(5)
    sources = [cast.job(), cast.job(name="second", environment={"name": "external"})]
    record(cast.job(name="not named"), 9, rng, num_groups=4)
    sessions = [one for place, job in enumerate(sources) for one in record(job, place, rng, num_groups=12)]
    for data in CHOICES:
        expected, left_out = chosen_by_hand(sessions, data)
        submitted = imitation(cast, shown(sources[0]), "second", **data)

        response = cast.member.call("POST", "jobs", submitted)

        assert response.status_code == 201, response.content
        body = json.loads(response.content)
        job = Job.objects.get(id=Job.objects.latest("created_at").id)
        rows = DatasetGroup.objects.filter(job=job).order_by("position")
        assert [(row.group_id, row.session_ids) for row in rows] == expected, data
        assert [row.position for row in rows] == list(range(len(expected)))
        dataset = body["dataset"]
        assert {one["reason"]: one["num_sessions"] for one in dataset["left_out"]} == left_out
        assert dataset["num_groups"] == len(expected)
        assert dataset["num_sessions"] == sum(len(ids) for _, ids in expected)
        assert dataset["num_sessions"] + sum(left_out.values()) == len(sessions)
        per_epoch = -(-len(expected) // data.get("groups_per_batch", 16))
        assert body["progress"]["num_updates"] == per_epoch * data.get("num_epochs", 1)
        assert body["spec"]["data"]["jobs"] == [shown(source) for source in sources]


def test_sessions_that_a_source_records_later_are_not_selected(cast: Cast) -> None:
    source, rng = cast.job(), np.random.default_rng(1)
    record(source, 0, rng, num_groups=4)
    job = submit(cast, imitation(cast, shown(source), min_reward=None))
    before = list(DatasetGroup.objects.filter(job=job).values_list("group_id", "session_ids"))
    Session.objects.filter(job=source, state="open").update(state="closed", reward=1.0)
    later = cast.job(name="later")
    record(later, 0, rng, num_groups=2)
    Session.objects.filter(job=later).update(job=source)

    assert list(DatasetGroup.objects.filter(job=job).values_list("group_id", "session_ids")) == before


def test_a_job_may_have_fewer_updates_than_its_epochs(cast: Cast) -> None:
    source = cast.job()
    record(source, 0, np.random.default_rng(2), num_groups=8)
    spec = imitation(cast, shown(source), min_reward=None, groups_per_batch=2)
    whole = submit(cast, spec).spec["train"]["num_updates"]

    assert whole > 2
    assert submit(cast, spec | {"train": {"num_updates": 2}}).spec["train"]["num_updates"] == 2
    assert submit(cast, spec | {"train": {"num_updates": 900}}).spec["train"]["num_updates"] == whole


def submit(cast: Cast, spec: dict[str, Any]) -> Job:
    return job_submit(project=cast.owner.project, user=cast.owner.user, submitted=spec, author=SYSTEM)


def refused(cast: Cast, spec: dict[str, Any]) -> tuple[str, str]:
    """Return the field and the text of the only error; check that nothing is left behind."""
    num_jobs = Job.objects.count()
    response = cast.member.call("POST", "jobs", spec)
    assert response.status_code == 400, response.content
    assert (Job.objects.count(), DatasetGroup.objects.count()) == (num_jobs, 0)
    (fault,) = json.loads(response.content)["errors"]
    return fault["field"], fault["detail"]


def test_jobs_of_other_projects_do_not_exist(cast: Cast) -> None:
    theirs = job_submit(
        project=cast.outsider.project,
        user=cast.outsider.user,
        submitted=cast.spec(name="theirs"),
        author=SYSTEM,
    )
    record(theirs, 0, np.random.default_rng(3), num_groups=4)
    for reference in (shown(theirs), "theirs"):
        field, detail = refused(cast, imitation(cast, reference))
        assert field == "data.jobs.0"
        assert detail == f"there is no job {reference!r} in this project; accepted: a job's id or name"


def test_an_ambiguous_job_name_is_refused_and_the_ids_are_listed(cast: Cast) -> None:
    jobs = [cast.job(), cast.job()]
    field, detail = refused(cast, imitation(cast, "calculator"))
    assert field == "data.jobs.0"
    assert all(shown(job) in detail for job in jobs)


def test_a_job_named_twice_is_refused(cast: Cast) -> None:
    source = cast.job()
    assert refused(cast, imitation(cast, shown(source), "calculator")) == (
        "data.jobs.1",
        "'calculator' is named twice",
    )


def test_an_empty_selection_is_refused_with_its_reasons(cast: Cast) -> None:
    source = cast.job()
    assert refused(cast, imitation(cast, shown(source))) == (
        "data",
        f"there is nothing to train on: {shown(source)} recorded no session",
    )
    record(source, 0, np.random.default_rng(4), num_groups=4)
    field, detail = refused(cast, imitation(cast, shown(source), min_reward=50.0))
    assert field == "data"
    assert "outside the bounds of the reward" in detail


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_tokens_of_another_tokenizer_are_refused(cast: Cast, is_forgotten: bool) -> None:
    """This includes sources that were submitted before digests were stored."""
    source = cast.job()
    if is_forgotten:
        Job.objects.filter(id=source.id).update(tokenizer_sha256="")
    other = model_folder(cast.model.parent / "other")
    file = other / "tokenizer.json"
    file.write_text(file.read_text().replace('"Z"', '"ZZ"'))
    spec = imitation(cast, shown(source))
    field, detail = refused(cast, spec | {"model": {"source": str(other)}})
    assert field == "data.jobs.0"
    assert "a tokenizer other than" in detail


def test_a_source_whose_tokens_can_no_longer_be_read_is_refused(cast: Cast, tmp_path: Path) -> None:
    source = cast.job()
    Job.objects.filter(id=source.id).update(tokenizer_sha256="", model_path=str(tmp_path / "gone"))
    field, detail = refused(cast, imitation(cast, shown(source)))
    assert field == "data.jobs.0"
    assert "no longer known" in detail


def test_sessions_that_may_be_too_long_are_refused(cast: Cast) -> None:
    source = cast.job(model={"source": str(cast.model), "max_model_len": 512})
    spec = imitation(cast, shown(source))
    field, detail = refused(cast, spec | {"model": {"source": str(cast.model), "max_model_len": 256}})
    assert (field, "512" in detail) == ("model.max_model_len", True)
