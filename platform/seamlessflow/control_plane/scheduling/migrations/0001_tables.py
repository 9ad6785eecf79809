"""The tables of `scheduling`."""

import django.db.models.deletion
from django.db import migrations, models

import seamlessflow.control_plane.common.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        ("cluster", "0001_tables"),
        ("jobs", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="Phase",
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
                    "role",
                    models.CharField(
                        choices=[("rollout", "rollout"), ("train", "train"), ("agent", "agent")],
                        max_length=16,
                    ),
                ),
                (
                    "fence",
                    models.PositiveBigIntegerField(
                        help_text="The machine's counter when the phase was leased."
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("leased", "leased"),
                            ("starting", "starting"),
                            ("active", "active"),
                            ("draining", "draining"),
                            ("ended", "ended"),
                            ("failed", "failed"),
                        ],
                        default="leased",
                        max_length=16,
                    ),
                ),
                (
                    "reason",
                    models.TextField(blank=True, default="", help_text="Why the phase is in this state."),
                ),
                (
                    "boot_id",
                    models.UUIDField(help_text="Boot of the supervisor that took the phase.", null=True),
                ),
                (
                    "endpoint",
                    models.CharField(
                        blank=True, default="", help_text="Rollout: base URL of the front.", max_length=255
                    ),
                ),
                (
                    "desired_version",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Rollout: the version that the engine should serve."
                    ),
                ),
                (
                    "served_version",
                    models.PositiveBigIntegerField(
                        help_text="Rollout: the version that the engine serves.", null=True
                    ),
                ),
                (
                    "num_batches",
                    models.PositiveIntegerField(
                        help_text="Train: number of updates after which the phase ends by itself.", null=True
                    ),
                ),
                (
                    "next_role",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="What the machine does next when this phase ends.",
                        max_length=16,
                    ),
                ),
                ("next_num_batches", models.PositiveIntegerField(null=True)),
                ("next_reason", models.TextField(blank=True, db_default="", default="")),
                (
                    "gang_id",
                    models.UUIDField(
                        db_index=True,
                        help_text="Train: shared by the phases of one gang, on several machines.",
                        null=True,
                    ),
                ),
                (
                    "gang_member",
                    models.PositiveSmallIntegerField(
                        help_text="Number within the gang: 0 leads, and ranks are numbered in this order.",
                        null=True,
                    ),
                ),
                (
                    "drain_grace_s",
                    models.FloatField(
                        help_text="Draining: seconds for which running work may continue; null: no limit.",
                        null=True,
                    ),
                ),
                ("leased_at", models.DateTimeField(auto_now_add=True)),
                ("active_at", models.DateTimeField(null=True)),
                ("draining_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="phases", to="jobs.job"
                    ),
                ),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="phases",
                        to="cluster.machine",
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
                "ordering": ["-leased_at"],
                "indexes": [
                    models.Index(fields=["job", "state"], name="phase_job_state"),
                    models.Index(fields=["job", "role", "-leased_at"], name="phase_job_role_leased"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ["active", "draining", "leased", "starting"])),
                        fields=("machine",),
                        name="phase_one_live_per_machine",
                    ),
                    models.UniqueConstraint(fields=("machine", "fence"), name="phase_fence_unique"),
                ],
            },
        ),
    ]
