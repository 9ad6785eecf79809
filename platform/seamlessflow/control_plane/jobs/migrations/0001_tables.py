"""The tables of `jobs`."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import seamlessflow.control_plane.common.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Job",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=seamlessflow.control_plane.common.ids.new_id,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=120)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "queued"),
                            ("starting", "starting"),
                            ("running", "running"),
                            ("pausing", "pausing"),
                            ("paused", "paused"),
                            ("cancelling", "cancelling"),
                            ("completed", "completed"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                            ("lost", "lost"),
                        ],
                        db_index=True,
                        default="queued",
                        max_length=16,
                    ),
                ),
                (
                    "state_reason",
                    models.TextField(blank=True, default="", help_text="Why the job is in this state."),
                ),
                (
                    "waiting_reason",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text="Why the job waits, according to the last scheduling cycle.",
                    ),
                ),
                (
                    "desired",
                    models.CharField(
                        choices=[("run", "run"), ("pause", "pause"), ("cancel", "cancel")],
                        default="run",
                        max_length=16,
                    ),
                ),
                (
                    "pause_reason",
                    models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Why the platform itself requested the pause.",
                    ),
                ),
                (
                    "resumed_at",
                    models.DateTimeField(
                        help_text="Time of the last request to resume: earlier failures no longer count.",
                        null=True,
                    ),
                ),
                ("generation", models.PositiveBigIntegerField(default=1)),
                ("spec_submitted", models.JSONField(help_text="The spec as it was submitted.")),
                (
                    "spec",
                    models.JSONField(
                        help_text="The spec with all defaults filled in. Read it as `resolved_spec`."
                    ),
                ),
                (
                    "model_path",
                    models.CharField(help_text="Local folder of the initial model.", max_length=1024),
                ),
                (
                    "tasks_path",
                    models.CharField(
                        blank=True, default="", help_text="Local path of the tasks file.", max_length=1024
                    ),
                ),
                ("num_tasks", models.PositiveIntegerField(null=True)),
                (
                    "evaluation_tasks_path",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Local path of the file of held-out tasks.",
                        max_length=1024,
                    ),
                ),
                (
                    "tokenizer_sha256",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Digest of the tokenizer: recorded tokens mean the same to jobs with equal digests.",
                        max_length=64,
                    ),
                ),
                (
                    "dataset",
                    models.JSONField(
                        help_text="Which recorded trajectories were selected (data.source), and which were left out.",
                        null=True,
                    ),
                ),
                (
                    "train_fence",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Fence of the phase that may publish versions."
                    ),
                ),
                ("latest_version", models.PositiveBigIntegerField(default=0)),
                (
                    "published_batch",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Number of the last batch in published weights."
                    ),
                ),
                (
                    "stage_requested",
                    models.PositiveIntegerField(
                        help_text="Index of the stage that a person requested last.", null=True
                    ),
                ),
                (
                    "stage_request",
                    models.PositiveIntegerField(
                        db_default=0, default=0, help_text=("Number of requests to switch the stage.")
                    ),
                ),
                (
                    "num_failures",
                    models.PositiveIntegerField(
                        default=0, help_text="Number of phases that failed since the last publication."
                    ),
                ),
                (
                    "submission_key",
                    models.CharField(
                        help_text="Idempotency-Key of the request that created the job.",
                        max_length=200,
                        null=True,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "trajectories_deleted_at",
                    models.DateTimeField(
                        help_text="When its tokens and messages were deleted; groups and rewards stay.",
                        null=True,
                    ),
                ),
                ("logs_deleted_at", models.DateTimeField(null=True)),
                (
                    "kept_summary",
                    models.JSONField(
                        help_text="Its summary at the time when its trajectories were deleted.", null=True
                    ),
                ),
                ("metrics_rolled_up_at", models.DateTimeField(null=True)),
                (
                    ("deleted_at"),
                    models.DateTimeField(
                        help_text="When the job was deleted; from then on nobody sees it.", null=True
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="jobs",
                        to="accounts.project",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="RewardCurve",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="stored_curve",
                        serialize=False,
                        to="jobs.job",
                    ),
                ),
                (
                    "through",
                    models.PositiveBigIntegerField(
                        help_text="The curve contains published batches up to this one."
                    ),
                ),
                ("points", models.JSONField(default=list)),
            ],
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                fields=("project", "submission_key"), name="one_job_per_submission_key"
            ),
        ),
    ]
