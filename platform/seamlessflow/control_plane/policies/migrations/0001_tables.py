"""The tables of `policies`."""

import django.db.models.deletion
from django.db import migrations, models

import seamlessflow.control_plane.common.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0002_tables"),
        ("jobs", "0001_tables"),
        ("scheduling", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="PolicyVersion",
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
                ("version", models.PositiveBigIntegerField()),
                ("parent_version", models.PositiveBigIntegerField(null=True)),
                ("optimizer_step", models.PositiveBigIntegerField(default=0)),
                (
                    "batch_number",
                    models.PositiveBigIntegerField(
                        help_text="The batch that this version was trained on; null for version 0.",
                        null=True,
                    ),
                ),
                ("uri", models.CharField(max_length=1024)),
                ("manifest_sha256", models.CharField(blank=True, default="", max_length=64)),
                ("num_bytes", models.BigIntegerField(default=0)),
                ("checkpoint_uri", models.CharField(blank=True, default="", max_length=1024)),
                ("train_fence", models.PositiveBigIntegerField(default=0)),
                (
                    "is_pinned",
                    models.BooleanField(default=False, help_text="Whether retention keeps its files."),
                ),
                (
                    "deleted_at",
                    models.DateTimeField(help_text="When retention deleted its files.", null=True),
                ),
                ("published_at", models.DateTimeField(auto_now_add=True)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="jobs.job"
                    ),
                ),
                (
                    "phase",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="scheduling.phase",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.project"
                    ),
                ),
            ],
            options={
                "ordering": ["job", "version"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("deleted_at", None)),
                        fields=["job", "version"],
                        name="policy_version_kept",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("job", "version"), name="policy_version_unique"),
                    models.UniqueConstraint(fields=("job", "batch_number"), name="policy_version_batch_once"),
                ],
            },
        ),
    ]
