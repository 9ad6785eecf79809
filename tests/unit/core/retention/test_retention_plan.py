"""What a retention policy deletes, and what it never deletes."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from seamlessflow.core.retention.planner import (
    CheckpointFacts,
    JobFacts,
    PlannedRemoval,
    RemovalKind,
    UploadFacts,
    VersionFacts,
    job_refusal,
    retention_plan,
    upload_refusal,
    version_refusal,
)
from seamlessflow.core.retention.policy import (
    SETTINGS,
    InvalidPolicy,
    RetentionRules,
    policy_make,
    settings_check,
)

SUBJECT = UUID(int=1)
GIGABYTE = 10**9
few = hypothesis_settings(max_examples=40)
days = st.one_of(st.none(), st.integers(8, 400))
policies = st.builds(
    policy_make,
    st.fixed_dictionaries(
        {name: days for name, setting in SETTINGS.items() if setting.may_be_none}
        | {"ended_checkpoints_keep": st.integers(0, 3)}
    ),
)
versions = st.lists(
    st.builds(VersionFacts, number=st.integers(1, 9), num_bytes=st.just(16), is_pinned=st.booleans()),
    unique_by=lambda version: version.number,
    max_size=6,
)
checkpoints = st.lists(
    st.builds(CheckpointFacts, number=st.integers(1, 9), num_bytes=st.just(96)),
    unique_by=lambda checkpoint: checkpoint.number,
    max_size=4,
)
jobs = st.lists(
    st.builds(
        JobFacts,
        id=st.uuids(),
        name=st.just("job"),
        ended_days=st.one_of(st.none(), st.floats(0, 500)),
        versions=versions,
        best_version=st.one_of(st.none(), st.integers(1, 9)),
        checkpoints=checkpoints,
        trajectories_bytes=st.one_of(st.none(), st.just(5)),
        logs_bytes=st.one_of(st.none(), st.just(1)),
        trained_by=st.sampled_from(["", "live job"]),
    ),
    unique_by=lambda job: job.id,
    max_size=5,
)
uploads = st.lists(
    st.builds(
        UploadFacts,
        id=st.uuids(),
        name=st.just("file"),
        num_bytes=st.just(3),
        unused_days=st.floats(0, 500),
        used_by=st.sampled_from(["", "kept job"]),
    ),
    unique_by=lambda upload: upload.id,
    max_size=4,
)


@few
@given(policies, jobs, uploads)
def test_a_plan_never_contains_what_is_needed_or_refused(
    policy: RetentionRules, facts: list[JobFacts], files: list[UploadFacts]
) -> None:
    by_id, file_by_id = {job.id: job for job in facts}, {upload.id: upload for upload in files}
    for removal in retention_plan(policy, jobs=facts, uploads=files):
        if removal.kind is RemovalKind.UPLOAD:
            assert not upload_refusal(file_by_id[removal.subject])
            continue
        job = by_id[removal.subject]
        assert job.ended_days is not None
        assert not job_refusal(job, removal.kind)
        if removal.kind is RemovalKind.VERSION:
            assert removal.number is not None
            assert not version_refusal(job, removal.number)
            assert removal.number != max(version.number for version in job.versions)


@few
@given(policies, jobs, uploads)
def test_a_whole_job_is_planned_as_one_item_and_nothing_is_planned_twice(
    policy: RetentionRules, facts: list[JobFacts], files: list[UploadFacts]
) -> None:
    plan = retention_plan(policy, jobs=facts, uploads=files)
    keys = [(removal.kind, removal.subject, removal.number) for removal in plan]
    assert len(keys) == len(set(keys))
    whole = {removal.subject for removal in plan if removal.kind is RemovalKind.JOB}
    assert not [
        removal for removal in plan if removal.subject in whole and removal.kind is not RemovalKind.JOB
    ]


@few
@given(policies, jobs, uploads, st.sampled_from(sorted(SETTINGS)))
def test_a_policy_that_keeps_data_longer_deletes_no_more(
    policy: RetentionRules, facts: list[JobFacts], files: list[UploadFacts], name: str
) -> None:
    # What follows is freed with the whole job: it is no ground for comparison.
    without_jobs = policy_make(policy.values, {"jobs_days": None})
    value = without_jobs.values[name]
    laxer = policy_make(without_jobs.values, {name: None if value is None else value + 5})
    assert subjects(laxer, facts, files) <= subjects(without_jobs, facts, files)


def subjects(
    policy: RetentionRules, facts: list[JobFacts], files: list[UploadFacts]
) -> set[tuple[object, ...]]:
    plan = retention_plan(policy, jobs=facts, uploads=files)
    return {(removal.kind, removal.subject, removal.number) for removal in plan}


@few
@given(policies, jobs, uploads)
def test_deleted_items_are_not_planned_again(
    policy: RetentionRules, facts: list[JobFacts], files: list[UploadFacts]
) -> None:
    plan = retention_plan(policy, jobs=facts, uploads=files)
    left = [_without(job, plan) for job in facts if not _is_gone(job, plan)]
    kept = {removal.subject for removal in plan if removal.kind is RemovalKind.UPLOAD}
    again = retention_plan(policy, jobs=left, uploads=[file for file in files if file.id not in kept])
    assert again == []


def _is_gone(job: JobFacts, plan: list[PlannedRemoval]) -> bool:
    return any(removal.kind is RemovalKind.JOB and removal.subject == job.id for removal in plan)


def _without(job: JobFacts, plan: list[PlannedRemoval]) -> JobFacts:
    gone = {(removal.kind, removal.number) for removal in plan if removal.subject == job.id}
    return JobFacts(
        id=job.id,
        name=job.name,
        ended_days=job.ended_days,
        versions=[one for one in job.versions if (RemovalKind.VERSION, one.number) not in gone],
        best_version=job.best_version,
        checkpoints=[one for one in job.checkpoints if (RemovalKind.CHECKPOINT, one.number) not in gone],
        trajectories_bytes=None if (RemovalKind.TRAJECTORIES, None) in gone else job.trajectories_bytes,
        logs_bytes=None if (RemovalKind.LOGS, None) in gone else job.logs_bytes,
        trained_by=job.trained_by,
    )


def night_of_an_8b_model(ended_days: float) -> JobFacts:
    """8.03 billion parameters: a version has bfloat16 weights; a checkpoint has weights, moments
    and master copies."""
    version, checkpoint = 16 * GIGABYTE, 112 * GIGABYTE
    return JobFacts(
        id=SUBJECT,
        name="night",
        ended_days=ended_days,
        versions=[VersionFacts(number, version) for number in (58, 59, 60)],
        best_version=58,
        checkpoints=[CheckpointFacts(number, checkpoint) for number in (50, 60)],
    )


@pytest.mark.parametrize("ended_days, left", [(0, 160), (1, 144), (7, 32)])
def test_a_night_of_an_8b_model_shrinks_to_its_last_and_best_weights(ended_days: int, left: int) -> None:
    job = night_of_an_8b_model(ended_days)
    stored = sum(one.num_bytes for one in job.versions) + sum(one.num_bytes for one in job.checkpoints)
    freed = sum(removal.num_bytes for removal in retention_plan(policy_make(), jobs=[job], uploads=[]))
    assert (stored - freed) // GIGABYTE == left


def test_a_wrong_setting_is_refused_by_name() -> None:
    for values in ({"jobs": 3}, {"jobs_days": -1}, {"logs_days": "7"}, {"events_days": True},
                   {"ended_checkpoints_keep": None}):  # fmt: skip
        with pytest.raises(InvalidPolicy, match=f"{next(iter(values))}: .*accepted: "):
            settings_check(values)
    assert settings_check({"jobs_days": None, "logs_days": 0}) == {"jobs_days": None, "logs_days": 0}
