"""First tables of `trajectories`."""

from pathlib import Path

import django.db.models.deletion
from django.db import migrations, models

NODE_TABLE_SQL = (Path(__file__).parent / "node_table.sql").read_text()


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_initial"),
        ("jobs", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="RolloutGroup",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("index", models.PositiveBigIntegerField()),
                ("external_key", models.CharField(blank=True, default="", max_length=200)),
                ("task_index", models.PositiveIntegerField(null=True)),
                ("task", models.JSONField(default=dict)),
                ("size", models.PositiveIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "open"),
                            ("ready", "ready"),
                            ("batched", "batched"),
                            ("dropped", "dropped"),
                        ],
                        default="open",
                        max_length=16,
                    ),
                ),
                ("reason", models.TextField(blank=True, default="")),
                ("num_verdicts", models.PositiveIntegerField(default=0)),
                ("reward_mean", models.FloatField(null=True)),
                ("reward_std", models.FloatField(null=True)),
                (
                    "min_version",
                    models.BigIntegerField(help_text="Oldest version that sampled a token of it.", null=True),
                ),
                ("max_version", models.BigIntegerField(null=True)),
                ("batch_number", models.PositiveBigIntegerField(null=True)),
                ("lease_phase_id", models.UUIDField(help_text="The agent phase that runs it.", null=True)),
                ("lease_fence", models.PositiveBigIntegerField(null=True)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
                ("ready_at", models.DateTimeField(null=True)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.job"
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
                "db_table": "trajectory_group",
            },
        ),
        migrations.CreateModel(
            name="Session",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "month",
                    models.DateField(
                        help_text="First day of the month it was opened: the partition of its nodes."
                    ),
                ),
                ("slot", models.PositiveIntegerField()),
                ("attempt", models.PositiveIntegerField(default=1)),
                (
                    "state",
                    models.CharField(
                        choices=[("open", "open"), ("closed", "closed"), ("failed", "failed")],
                        default="open",
                        max_length=16,
                    ),
                ),
                ("reason", models.TextField(blank=True, default="")),
                (
                    "key_digest",
                    models.BinaryField(help_text="SHA-256 of the session's API key.", unique=True),
                ),
                ("reward", models.FloatField(null=True)),
                ("is_timeout", models.BooleanField(default=False)),
                (
                    "is_late",
                    models.BooleanField(
                        default=False, help_text="The reward came after its batch: stored, not trained."
                    ),
                ),
                ("metrics", models.JSONField(default=dict)),
                ("num_turns", models.PositiveIntegerField(default=0)),
                ("num_sampled_tokens", models.PositiveBigIntegerField(default=0)),
                ("opened_at", models.DateTimeField()),
                ("closed_at", models.DateTimeField(null=True)),
                (
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sessions",
                        to="trajectories.rolloutgroup",
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.job"
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
                "db_table": "trajectory_session",
            },
        ),
        migrations.CreateModel(
            name="Batch",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("number", models.PositiveBigIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[("leased", "leased"), ("applied", "applied"), ("forgotten", "forgotten")],
                        default="leased",
                        max_length=16,
                    ),
                ),
                ("payload", models.BinaryField(help_text="Null once forgotten.", null=True)),
                ("payload_sha256", models.CharField(max_length=64)),
                (
                    "policy_version",
                    models.BigIntegerField(help_text="The trainer's version when it was assembled."),
                ),
                ("num_groups", models.PositiveIntegerField()),
                ("num_samples", models.PositiveIntegerField()),
                ("num_tokens", models.PositiveBigIntegerField()),
                ("num_trained_tokens", models.PositiveBigIntegerField()),
                ("min_version", models.BigIntegerField(null=True)),
                ("lease_phase_id", models.UUIDField()),
                ("lease_fence", models.PositiveBigIntegerField()),
                ("lease_expires_at", models.DateTimeField()),
                ("created_at", models.DateTimeField()),
                ("applied_at", models.DateTimeField(null=True)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.job"
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
                "db_table": "trajectory_batch",
                "constraints": [
                    models.UniqueConstraint(fields=("job", "number"), name="trajectory_batch_number")
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "leased")),
                        fields=["job"],
                        name="trajectory_batch_leased",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PromptContent",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("digest", models.BinaryField(help_text="blake2b-16 over the int32 token bytes.")),
                ("num_tokens", models.PositiveIntegerField()),
                ("token_ids", models.BinaryField()),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.job"
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
                "db_table": "trajectory_prompt",
                "constraints": [
                    models.UniqueConstraint(fields=("job", "digest"), name="trajectory_prompt_content")
                ],
            },
        ),
        migrations.AddIndex(
            model_name="rolloutgroup",
            index=models.Index(fields=["job", "state", "index"], name="trajectory_group_state"),
        ),
        migrations.AddConstraint(
            model_name="rolloutgroup",
            constraint=models.UniqueConstraint(fields=("job", "index"), name="trajectory_group_index"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["job", "opened_at"], name="trajectory_session_job"),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.UniqueConstraint(
                fields=("group", "slot", "attempt"), name="trajectory_session_slot"
            ),
        ),
        migrations.RunSQL(
            NODE_TABLE_SQL,
            reverse_sql="DROP TABLE trajectory_node",
        ),
    ]
