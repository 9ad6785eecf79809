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
                    models.TextField(blank=True, default="", help_text="Why it is in this state."),
                ),
                (
                    "waiting_reason",
                    models.TextField(
                        blank=True, default="", help_text="Last cycle's answer to: why does it wait?"
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
                        help_text="Why the platform itself asked for the pause.",
                    ),
                ),
                (
                    "resumed_at",
                    models.DateTimeField(
                        help_text="When it was last asked to go on: what failed before no longer counts.",
                        null=True,
                    ),
                ),
                ("generation", models.PositiveBigIntegerField(default=1)),
                ("spec_submitted", models.JSONField(help_text="As it was sent.")),
                (
                    "spec",
                    models.JSONField(help_text="With every default filled in. Read it as `resolved_spec`."),
                ),
                (
                    "model_path",
                    models.CharField(
                        help_text="Local folder of the initial model, resolved.", max_length=1024
                    ),
                ),
                (
                    "tasks_path",
                    models.CharField(
                        blank=True, default="", help_text="Local tasks file, resolved.", max_length=1024
                    ),
                ),
                ("num_tasks", models.PositiveIntegerField(null=True)),
                (
                    "evaluation_tasks_path",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Local file of held-out tasks, resolved.",
                        max_length=1024,
                    ),
                ),
                (
                    "tokenizer_sha256",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Of what its tokenizer makes of ids: equal digests, equal meaning of recorded tokens.",
                        max_length=64,
                    ),
                ),
                (
                    "dataset",
                    models.JSONField(
                        help_text="What was chosen of recorded trajectories (data.source), and what was not.",
                        null=True,
                    ),
                ),
                (
                    "train_fence",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Fence of the phase that may publish."
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
                        help_text="Index of the stage that a person asked for last.", null=True
                    ),
                ),
                (
                    "stage_request",
                    models.PositiveIntegerField(db_default=0, default=0, help_text="Counts such requests."),
                ),
                (
                    "num_failures",
                    models.PositiveIntegerField(
                        default=0, help_text="Phases that failed since the last publication."
                    ),
                ),
                (
                    "submission_key",
                    models.CharField(
                        help_text="Idempotency-Key of the request that made it.", max_length=200, null=True
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "trajectories_deleted_at",
                    models.DateTimeField(
                        help_text="From then on its tokens and messages are not shown; groups and rewards stay.",
                        null=True,
                    ),
                ),
                ("logs_deleted_at", models.DateTimeField(null=True)),
                (
                    "kept_summary",
                    models.JSONField(
                        help_text="Its summary, as it was when its trajectories were deleted.", null=True
                    ),
                ),
                ("metrics_rolled_up_at", models.DateTimeField(null=True)),
                ("deleted_at", models.DateTimeField(help_text="From then on nobody sees it.", null=True)),
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
                    models.PositiveBigIntegerField(help_text="Published batches up to this one are in it."),
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
