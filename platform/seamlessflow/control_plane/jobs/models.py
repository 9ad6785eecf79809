"""Jobs, and their curves of rewards.

`state` moves only through `core.lifecycle.jobs`; `desired` is what people asked for.
"""

from datetime import datetime, timedelta

from django.db import models

from seamlessflow.control_plane.common.database.clock import StoredAtField
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.common.resolved_specs import RESOLVED_SPECS, ResolvedSpec
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.jobs import (
    TERMINAL_JOB_STATES,
    DesiredJobState,
    JobState,
    PausedBy,
    paused_by,
    ran_for,
)


class Job(models.Model):
    """One RL run."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="jobs")
    name = models.CharField(max_length=120)
    state = models.CharField(
        max_length=16,
        choices=[(s.value, s.value) for s in JobState],
        default=JobState.QUEUED.value,
        db_index=True,
    )
    state_reason = models.TextField(blank=True, default="", help_text="Why the job is in this state.")
    waiting_reason = models.TextField(
        blank=True, default="", help_text="Why the job waits, according to the last scheduling cycle."
    )
    desired = models.CharField(
        max_length=16,
        choices=[(s.value, s.value) for s in DesiredJobState],
        default=DesiredJobState.RUN.value,
    )
    pause_reason = models.TextField(
        blank=True, default="", db_default="", help_text="Why the platform itself requested the pause."
    )
    resumed_at = models.DateTimeField(
        null=True, help_text="Time of the last request to resume: earlier failures no longer count."
    )
    generation = models.PositiveBigIntegerField(default=1)
    priority = models.SmallIntegerField(
        null=True, help_text="Priority that a person gave it after its submission; null: the one of its spec."
    )
    owed = models.SmallIntegerField(
        default=0,
        db_default=0,
        help_text="1: it had too little machine time and gets a machine more for a while; -1: one less.",
    )
    spec_submitted = models.JSONField(help_text="The spec as it was submitted.")
    spec = models.JSONField(help_text="The spec with all defaults filled in. Read it as `resolved_spec`.")
    model_path = models.CharField(max_length=1024, help_text="Local folder of the initial model.")
    model_shape = models.JSONField(
        null=True, help_text="What the model's need of memory follows from; null if that is not known."
    )
    model_notes = models.JSONField(
        default=list,
        db_default=[],
        help_text="Sentences on what does not work with the model's chat template, or was not shown to work.",
    )
    tasks_path = models.CharField(
        max_length=1024, blank=True, default="", help_text="Local path of the tasks file."
    )
    num_tasks = models.PositiveIntegerField(null=True)
    evaluation_tasks_path = models.CharField(
        max_length=1024,
        blank=True,
        default="",
        db_default="",
        help_text="Local path of the file of held-out tasks.",
    )
    tokenizer_sha256 = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Digest of the tokenizer: recorded tokens mean the same to jobs with equal digests.",
    )
    dataset = models.JSONField(
        null=True,
        help_text="Which recorded trajectories were selected (data.source), and which were left out.",
    )
    train_fence = models.PositiveBigIntegerField(
        default=0, help_text="Fence of the phase that may publish versions."
    )
    latest_version = models.PositiveBigIntegerField(default=0)
    published_batch = models.PositiveBigIntegerField(
        default=0, help_text="Number of the last batch in published weights."
    )
    stage_requested = models.PositiveIntegerField(
        null=True, help_text="Index of the stage that a person requested last."
    )
    stage_request = models.PositiveIntegerField(
        default=0, db_default=0, help_text=("Number of requests to switch the stage.")
    )
    num_failures = models.PositiveIntegerField(
        default=0, help_text="Number of phases that failed since the last publication."
    )
    submission_key = models.CharField(  # noqa: DJ001 - null is no key, and nulls are not unique
        max_length=200, null=True, help_text="Idempotency-Key of the request that created the job."
    )
    created_by = models.ForeignKey("accounts.User", null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = StoredAtField()
    queued_at = models.DateTimeField(
        null=True, help_text="When it entered the queue last, if not by its submission."
    )
    admitted_at = models.DateTimeField(null=True, help_text="When it left the queue last.")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    paused_at = models.DateTimeField(null=True, help_text="Since when it is paused; null if it is not.")
    paused_for = models.DurationField(
        default=timedelta(0),
        db_default=timedelta(0),
        help_text="How long it was paused between its start and its last move.",
    )
    trajectories_deleted_at = models.DateTimeField(
        null=True, help_text="When its tokens and messages were deleted; groups and rewards stay."
    )
    logs_deleted_at = models.DateTimeField(null=True)
    kept_summary = models.JSONField(
        null=True, help_text="Its summary at the time when its trajectories were deleted."
    )
    metrics_rolled_up_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(
        null=True, help_text="When the job was deleted; from then on nobody sees it."
    )

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["project", "submission_key"], name="one_job_per_submission_key")
        ]
        indexes = [
            # Heartbeats and scheduling cycles look at these, however many jobs are over.
            models.Index(
                fields=["created_at", "id"],
                condition=~models.Q(state__in=sorted(state.value for state in TERMINAL_JOB_STATES)),
                name="job_unfinished",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def paused_by(self) -> PausedBy | None:
        return paused_by(JobState(self.state), DesiredJobState(self.desired), self.pause_reason)

    def ran_for(self, now: datetime) -> timedelta | None:
        return ran_for(self.started_at, self.ended_at or self.paused_at or now, self.paused_for)

    @property
    def current_priority(self) -> int:
        return self.resolved_spec.priority if self.priority is None else self.priority

    @property
    def resolved(self) -> ResolvedSpec:
        return RESOLVED_SPECS.of([self.id], lambda _: [(self.id, self.spec, self.model_shape)])[self.id]

    @property
    def resolved_spec(self) -> JobSpec:
        return self.resolved.spec


class RewardCurve(models.Model):
    """The curve of a job's rewards that a list shows: each point is `[last batch, mean, number of groups]`."""

    job = models.OneToOneField(Job, primary_key=True, on_delete=models.CASCADE, related_name="stored_curve")
    through = models.PositiveBigIntegerField(help_text="The curve contains published batches up to this one.")
    points = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"rewards up to batch {self.through}"
