"""Edits retention policies and applies them in the background.

Invariant: nothing is deleted while a back-up copies (`common.files.removals.deletions_allowed`).
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.common.files.artifacts import artifact_store
from seamlessflow.control_plane.common.files.removals import RETENTION, deletions_allowed
from seamlessflow.control_plane.common.models import SubjectType
from seamlessflow.control_plane.common.services import event_record
from seamlessflow.control_plane.common.subjects import INSTALLATION
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.storage.models import RetentionPolicy
from seamlessflow.control_plane.storage.selectors import job_facts, policy_of, upload_facts
from seamlessflow.control_plane.storage.services.aging import events_age, ledger_age, metrics_age
from seamlessflow.control_plane.storage.services.backups.staging import leftover_remove
from seamlessflow.control_plane.storage.services.carrying_out import removals_carry_out
from seamlessflow.control_plane.storage.services.deletions import removals_mark
from seamlessflow.control_plane.storage.services.measuring import usage_measure
from seamlessflow.control_plane.storage.services.session_logs import session_logs_bound
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.retention.planner import PlannedRemoval, UploadFacts, retention_plan
from seamlessflow.core.retention.policy import SETTINGS, InvalidPolicy, RetentionRules, settings_check


def policy_edit(
    *, project: Project | None, changes: Mapping[str, object], reset: list[str], author: str
) -> None:
    """Change the settings of a project, or of the installation; `reset` names settings to inherit again.

    Raises ApplicationError naming the setting.
    """
    try:
        checked = settings_check(changes)
        settings_check({name: SETTINGS[name].default for name in reset if name in SETTINGS} | _unknown(reset))
    except InvalidPolicy as error:
        raise field_error(error.field, error.detail) from error
    for name in [*checked, *reset]:
        if project is not None and SETTINGS[name].is_of_installation:
            raise field_error(name, "can only be set for the installation, because machines belong to it")
    with transaction.atomic():
        RetentionPolicy.objects.get_or_create(project=project)
        row = RetentionPolicy.objects.select_for_update().get(project=project)
        before = dict(row.settings)
        row.settings = {name: value for name, value in (before | checked).items() if name not in reset}
        if row.settings == before:
            return
        row.edited_by = author
        row.save()
        _policy_event(project, before, row.settings, author)


def policy_plan(project_id: UUID, *, now: datetime) -> list[PlannedRemoval]:
    """Return the removals that the policy asks for now; serves as the dry run. Reads tables only."""
    policy = policy_of(project_id)
    jobs = Job.objects.filter(project_id=project_id, deleted_at=None, state__in=TERMINAL_JOB_STATES)
    return retention_plan(
        policy, jobs=job_facts(jobs, now=now), uploads=_unused_uploads(project_id, policy, now)
    )


def _unused_uploads(project_id: UUID, policy: RetentionRules, now: datetime) -> list[UploadFacts]:
    """Return only uploads that the policy may delete; judging thousands one by one would take a second."""
    days = policy.values["uploads_unused_days"]
    if days is None:
        return []
    return upload_facts(project_id=project_id, now=now, unused_since=now - timedelta(days=days))


def retention_apply(*, now: datetime) -> int:
    """Measure, mark removals by the policies, thin out old data. Returns how many removals were marked."""
    usage_measure(now=now)
    with deletions_allowed() as is_allowed:
        if not is_allowed:
            return 0
        marked = 0
        for project_id in Project.objects.values_list("id", flat=True):
            planned = policy_plan(project_id, now=now)
            marked += len(
                removals_mark(project_id=project_id, planned=planned, author=RETENTION, is_strict=False)
            )
        events_age(now=now)
        metrics_age(now=now)
        ledger_age(now=now)
        session_logs_bound()
        removals_carry_out(now=now)
    return marked


def removals_run(*, now: datetime) -> int:
    """Carry out the marked removals."""
    with deletions_allowed() as is_allowed:
        if not is_allowed:
            return 0
        leftover_remove(artifact_store())
        return removals_carry_out(now=now)


def _unknown(names: list[str]) -> dict[str, object]:
    return {name: None for name in names if name not in SETTINGS}


def _policy_event(
    project: Project | None, before: Mapping[str, object], after: Mapping[str, object], author: str
) -> None:
    event_record(
        kind="retention.edited",
        subject_type=SubjectType.PROJECT,
        subject_id=INSTALLATION if project is None else project.id,
        project_id=None if project is None else project.id,
        author=author,
        data={"before": dict(before), "after": dict(after)},
    )
