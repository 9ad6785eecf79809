"""Jobs, and their curves of rewards.

`state` moves only through `core.lifecycle.jobs`; `desired` is what people asked for.
"""

from django.db import models

from seamlessflow.control_plane.common.database.clock import StoredAtField
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.control_plane.jobs.resolved_specs import RESOLVED_SPECS
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState


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
    state_reason = models.TextField(blank=True, default="", help_text="Why it is in this state.")
    waiting_reason = models.TextField(
        blank=True, default="", help_text="Last cycle's answer to: why does it wait?"
    )
    desired = models.CharField(
        max_length=16,
        choices=[(s.value, s.value) for s in DesiredJobState],
        default=DesiredJobState.RUN.value,
    )
    pause_reason = models.TextField(
        blank=True, default="", db_default="", help_text="Why the platform itself asked for the pause."
    )
    resumed_at = models.DateTimeField(
        null=True, help_text="When it was last asked to go on: what failed before no longer counts."
    )
    generation = models.PositiveBigIntegerField(default=1)
    spec_submitted = models.JSONField(help_text="As it was sent.")
    spec = models.JSONField(help_text="With every default filled in. Read it as `resolved_spec`.")
    model_path = models.CharField(max_length=1024, help_text="Local folder of the initial model, resolved.")
    tasks_path = models.CharField(
        max_length=1024, blank=True, default="", help_text="Local tasks file, resolved."
    )
    num_tasks = models.PositiveIntegerField(null=True)
    evaluation_tasks_path = models.CharField(
        max_length=1024,
        blank=True,
        default="",
        db_default="",
        help_text="Local file of held-out tasks, resolved.",
    )
    tokenizer_sha256 = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Of what its tokenizer makes of ids: equal digests, equal meaning of recorded tokens.",
    )
    dataset = models.JSONField(
        null=True, help_text="What was chosen of recorded trajectories (data.source), and what was not."
    )
    train_fence = models.PositiveBigIntegerField(default=0, help_text="Fence of the phase that may publish.")
    latest_version = models.PositiveBigIntegerField(default=0)
    published_batch = models.PositiveBigIntegerField(
        default=0, help_text="Number of the last batch in published weights."
    )
    stage_requested = models.PositiveIntegerField(
        null=True, help_text="Index of the stage that a person asked for last."
    )
    stage_request = models.PositiveIntegerField(default=0, db_default=0, help_text="Counts such requests.")
    num_failures = models.PositiveIntegerField(
        default=0, help_text="Phases that failed since the last publication."
    )
    submission_key = models.CharField(  # noqa: DJ001 - null is no key, and nulls are not unique
        max_length=200, null=True, help_text="Idempotency-Key of the request that made it."
    )
    created_by = models.ForeignKey("accounts.User", null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = StoredAtField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    trajectories_deleted_at = models.DateTimeField(
        null=True, help_text="From then on its tokens and messages are not shown; groups and rewards stay."
    )
    logs_deleted_at = models.DateTimeField(null=True)
    kept_summary = models.JSONField(
        null=True, help_text="Its summary, as it was when its trajectories were deleted."
    )
    metrics_rolled_up_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True, help_text="From then on nobody sees it.")

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["project", "submission_key"], name="one_job_per_submission_key")
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def resolved_spec(self) -> JobSpec:
        return RESOLVED_SPECS.of([self.id], lambda _: [(self.id, self.spec)])[self.id].spec


class RewardCurve(models.Model):
    """The curve of a job's rewards that a list shows: each point is `[last batch, mean, number of groups]`."""

    job = models.OneToOneField(Job, primary_key=True, on_delete=models.CASCADE, related_name="stored_curve")
    through = models.PositiveBigIntegerField(help_text="Published batches up to this one are in it.")
    points = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"rewards up to batch {self.through}"
