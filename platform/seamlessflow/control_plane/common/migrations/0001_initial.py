"""First tables of `common`."""

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
            name="Artifact",
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
                ("name", models.CharField(max_length=255)),
                (
                    "uri",
                    models.CharField(help_text="Where the bytes are, under ARTIFACT_ROOT.", max_length=1024),
                ),
                (
                    "is_archive",
                    models.BooleanField(default=False, help_text="A tar that was unpacked into a folder."),
                ),
                ("num_bytes", models.BigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
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
                        related_name="artifacts",
                        to="accounts.project",
                    ),
                ),
            ],
        ),
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
                        ],
                        max_length=16,
                    ),
                ),
                ("subject_id", models.UUIDField()),
                ("job_id", models.UUIDField(help_text="The job this concerns, if any.", null=True)),
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
                ],
            },
        ),
    ]
