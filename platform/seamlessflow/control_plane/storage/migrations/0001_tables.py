"""The tables of `storage`."""

import django.db.models.deletion
from django.db import migrations, models

import seamlessflow.control_plane.common.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        ("jobs", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="StoredUsage",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="stored_usage",
                        serialize=False,
                        to="jobs.job",
                    ),
                ),
                ("trajectories_bytes", models.BigIntegerField(default=0)),
                ("logs_bytes", models.BigIntegerField(default=0)),
                ("events_bytes", models.BigIntegerField(default=0)),
                ("metrics_bytes", models.BigIntegerField(default=0)),
                (
                    "nodes_until",
                    models.DateTimeField(help_text="Nodes written before this time are counted.", null=True),
                ),
                ("measured_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="RetentionPolicy",
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
                    "settings",
                    models.JSONField(
                        blank=True, default=dict, help_text="Days by name of the setting; null: forever."
                    ),
                ),
                ("edited_by", models.CharField(blank=True, default="", max_length=150)),
                ("edited_at", models.DateTimeField(auto_now=True)),
                (
                    "project",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="retention_policy",
                        to="accounts.project",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "retention policies",
                "constraints": [
                    models.UniqueConstraint(
                        models.Value(1),
                        condition=models.Q(("project", None)),
                        name="one_policy_of_the_installation",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StoredCheckpoint",
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
                ("batch_number", models.PositiveBigIntegerField()),
                ("num_bytes", models.BigIntegerField()),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="stored_checkpoints",
                        to="jobs.job",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("job", "batch_number"), name="stored_checkpoint_once")
                ],
            },
        ),
    ]
