"""The tables of `common`."""

import django.contrib.postgres.indexes
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
            name="Event",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "subject_type",
                    models.CharField(
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
                ("subject_id", models.UUIDField()),
                ("job_id", models.UUIDField(help_text="The job that the event concerns, if any.", null=True)),
                (
                    "kind",
                    models.CharField(
                        help_text="e.g. job.state, machine.tags, version.published", max_length=64
                    ),
                ),
                ("from_state", models.CharField(blank=True, default="", max_length=16)),
                ("to_state", models.CharField(blank=True, default="", max_length=16)),
                ("reason", models.TextField(blank=True, default="")),
                (
                    "author",
                    models.CharField(
                        help_text="user:<name>, machine:<name>, scheduler, gateway, system", max_length=150
                    ),
                ),
                ("data", models.JSONField(default=dict)),
                ("at", models.DateTimeField(auto_now_add=True)),
                (
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="accounts.project",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "indexes": [
                    models.Index(fields=["subject_id", "id"], name="event_subject"),
                    models.Index(fields=["job_id", "id"], name="event_job"),
                    models.Index(fields=["kind", "id"], name="event_kind"),
                    models.Index(
                        condition=models.Q(("kind", "machine.edited")),
                        fields=["at"],
                        name="event_machine_edited",
                    ),
                    django.contrib.postgres.indexes.BrinIndex(fields=["at"], name="event_age"),
                ],
            },
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
                ("subject_id", models.UUIDField(help_text="Identifier of the job or the upload.")),
                (
                    "number",
                    models.PositiveBigIntegerField(
                        help_text="Number of the version, or of the checkpoint's batch.", null=True
                    ),
                ),
                (
                    ("name"),
                    models.CharField(
                        help_text="Name of the job or the upload when it was deleted.", max_length=255
                    ),
                ),
                (
                    "num_bytes",
                    models.BigIntegerField(help_text="Number of bytes that it frees, as last measured."),
                ),
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
