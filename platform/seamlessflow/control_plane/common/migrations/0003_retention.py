"""Removals, and uploads that are deleted."""

import django.db.models.deletion
from django.db import migrations, models

import seamlessflow.control_plane.common.ids


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("common", "0002_indexes_for_age"),
    ]

    operations = [
        migrations.AddField(
            model_name="artifact",
            name="deleted_at",
            field=models.DateTimeField(help_text="From then on nothing may name it.", null=True),
        ),
        migrations.AddField(
            model_name="artifact",
            name="last_used_at",
            field=models.DateTimeField(help_text="When the last job that used it was deleted.", null=True),
        ),
        migrations.AlterField(
            model_name="event",
            name="subject_type",
            field=models.CharField(
                choices=[
                    ("job", "Job"),
                    ("machine", "Machine"),
                    ("phase", "Phase"),
                    ("version", "Version"),
                    ("group", "Group"),
                    ("session", "Session"),
                    ("token", "Token"),
                    ("artifact", "Artifact"),
                    ("project", "Project"),
                ],
                max_length=16,
            ),
        ),
        migrations.CreateModel(
            name="Removal",
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
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("job", "job"),
                            ("upload", "upload"),
                            ("version", "version"),
                            ("checkpoint", "checkpoint"),
                            ("trajectories", "trajectories"),
                            ("logs", "logs"),
                        ],
                        max_length=16,
                    ),
                ),
                ("subject_id", models.UUIDField(help_text="A job, or an upload.")),
                (
                    "number",
                    models.PositiveBigIntegerField(
                        help_text="Of a version, or of a checkpoint's batch.", null=True
                    ),
                ),
                ("name", models.CharField(help_text="Of the job or the upload, as it was.", max_length=255)),
                ("num_bytes", models.BigIntegerField(help_text="What it frees, as last measured.")),
                (
                    "paths",
                    models.JSONField(default=list, help_text="Files and folders, relative to ARTIFACT_ROOT."),
                ),
                ("reason", models.TextField(blank=True, default="")),
                ("author", models.CharField(max_length=150)),
                ("requested_at", models.DateTimeField(auto_now_add=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.project"
                    ),
                ),
            ],
            options={
                "ordering": ["-requested_at", "-id"],
                "indexes": [
                    models.Index(fields=["project", "-requested_at"], name="removal_project"),
                    models.Index(
                        condition=models.Q(("finished_at", None)),
                        fields=["requested_at"],
                        name="removal_unfinished",
                    ),
                ],
            },
        ),
    ]
