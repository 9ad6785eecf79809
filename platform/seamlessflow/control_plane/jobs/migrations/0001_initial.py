"""First tables of `jobs`."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import seamlessflow.control_plane.common.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_initial"),
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
                ("generation", models.PositiveBigIntegerField(default=1)),
                ("spec_submitted", models.JSONField(help_text="As it was sent.")),
                ("spec", models.JSONField(help_text="With every default filled in.")),
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
                    "num_failures",
                    models.PositiveIntegerField(
                        default=0, help_text="Phases that failed since the last publication."
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
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
    ]
