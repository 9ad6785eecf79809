"""The tables of `trajectories`."""

from pathlib import Path

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

NODE_TABLE_SQL = (Path(__file__).parent / "node_table.sql").read_text()
# Rows of held time go with their session, by the database itself.
HELD_TIME_SQL = """
    ALTER TABLE trajectory_session_hold ADD CONSTRAINT trajectory_session_hold_session
    FOREIGN KEY (session_id) REFERENCES trajectory_session (id) ON DELETE CASCADE
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        ("jobs", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="GatewayLife",
            fields=[
                (
                    "gateway",
                    models.TextField(help_text="Its public address.", primary_key=True, serialize=False),
                ),
                ("seen_at", models.DateTimeField()),
            ],
            options={
                "db_table": "trajectory_gateway_life",
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
                    "is_requeued",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Ended by a drain of its runner; does not count as one of its slot's three failures.",
                    ),
                ),
                (
                    "is_late",
                    models.BooleanField(
                        default=False,
                        help_text="The reward arrived after its batch was made; it is stored and not trained.",
                    ),
                ),
                ("metrics", models.JSONField(default=dict)),
                ("num_turns", models.PositiveIntegerField(default=0)),
                ("num_sampled_tokens", models.PositiveBigIntegerField(default=0)),
                ("opened_at", models.DateTimeField()),
                ("closed_at", models.DateTimeField(null=True)),
                (
                    "expires_at",
                    models.DateTimeField(
                        help_text="External sessions: when it expires if it is still open; its requests postpone this.",
                        null=True,
                    ),
                ),
                (
                    "open_key",
                    models.CharField(
                        help_text="External sessions: Idempotency-Key of the request that opened it.",
                        max_length=200,
                        null=True,
                    ),
                ),
                (
                    "open_digest",
                    models.BinaryField(help_text="SHA-256 of the body of that request.", null=True),
                ),
            ],
            options={
                "db_table": "trajectory_session",
            },
        ),
        migrations.CreateModel(
            name="GatewayAbsence",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("gateway", models.TextField()),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField()),
            ],
            options={
                "db_table": "trajectory_gateway_absence",
                "indexes": [
                    models.Index(fields=["gateway", "ended_at"], name="trajectory_gateway_absence_end")
                ],
            },
        ),
        migrations.CreateModel(
            name="RolloutGroup",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("index", models.PositiveBigIntegerField()),
                (
                    "evaluation_version",
                    models.PositiveBigIntegerField(
                        help_text="Set for held-out groups, which are never trained: the version they evaluate.",
                        null=True,
                    ),
                ),
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
                            ("evaluating", "evaluating"),
                            ("evaluated", "evaluated"),
                        ],
                        default="open",
                        max_length=16,
                    ),
                ),
                ("reason", models.TextField(blank=True, default="")),
                ("num_rewarded", models.PositiveIntegerField(default=0)),
                ("reward_mean", models.FloatField(null=True)),
                ("reward_std", models.FloatField(null=True)),
                (
                    "min_version",
                    models.BigIntegerField(
                        help_text="Oldest version that sampled one of its tokens.", null=True
                    ),
                ),
                ("max_version", models.BigIntegerField(null=True)),
                ("batch_number", models.PositiveBigIntegerField(null=True)),
                (
                    "drop_cause",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("too_few_rewarded", "too_few_rewarded"),
                            ("no_contrast", "no_contrast"),
                            ("stale", "stale"),
                        ],
                        db_default="",
                        default="",
                        help_text="Why it was dropped.",
                        max_length=16,
                    ),
                ),
                (
                    "replaced_for",
                    models.PositiveBigIntegerField(
                        help_text="Set for dropped groups: the number of the batch that counts it as waste.",
                        null=True,
                    ),
                ),
                ("lease_phase_id", models.UUIDField(help_text="The agent phase that runs it.", null=True)),
                ("lease_fence", models.PositiveBigIntegerField(null=True)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
                ("ready_at", models.DateTimeField(null=True)),
                (
                    "finalized_at",
                    models.DateTimeField(
                        help_text="When none of its sessions could run any more.", null=True
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
                "db_table": "trajectory_group",
            },
        ),
        migrations.CreateModel(
            name="DatasetGroup",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("position", models.PositiveBigIntegerField()),
                (
                    "session_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(), help_text="In order of slot and attempt.", size=None
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
                (
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="trajectories.rolloutgroup",
                    ),
                ),
            ],
            options={
                "db_table": "trajectory_dataset",
            },
        ),
        migrations.CreateModel(
            name="SessionHold",
            fields=[
                (
                    "session",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="hold",
                        serialize=False,
                        to="trajectories.session",
                    ),
                ),
                ("gateway", models.TextField(help_text="Public address of the gateway that wrote it.")),
                ("held_s", models.FloatField(default=0.0)),
                (
                    "held_since",
                    models.DateTimeField(
                        help_text="Since when at least one of its turns has been held without a break.",
                        null=True,
                    ),
                ),
            ],
            options={
                "db_table": "trajectory_session_hold",
            },
        ),
        migrations.AddField(
            model_name="session",
            name="group",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="sessions",
                to="trajectories.rolloutgroup",
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="job",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="jobs.job"
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="project",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.project"
            ),
        ),
        migrations.CreateModel(
            name="TaskEpoch",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("number", models.PositiveIntegerField(help_text="Counts the job's epochs: 0, 1, 2, …")),
                ("stage", models.PositiveIntegerField(default=0, help_text="Index into algorithm.stages.")),
                (
                    "stage_request",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="jobs.Job.stage_request when it was made; a later request starts a new epoch.",
                    ),
                ),
                ("first_index", models.PositiveBigIntegerField(help_text="Index of its first group.")),
                ("num_tasks", models.PositiveIntegerField()),
                ("order", models.BinaryField(help_text="int32 task indices, zstd.")),
                ("reason", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField()),
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
                "db_table": "trajectory_epoch",
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
                (
                    "payload",
                    models.BinaryField(help_text="Null once a durable checkpoint contains it.", null=True),
                ),
                ("payload_sha256", models.CharField(max_length=64)),
                (
                    "policy_version",
                    models.BigIntegerField(help_text="The trainer's policy version when it was assembled."),
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
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "leased")),
                        fields=["job"],
                        name="trajectory_batch_leased",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("job", "number"), name="trajectory_batch_number")
                ],
            },
        ),
        migrations.CreateModel(
            name="Evaluation",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("version", models.PositiveBigIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("running", "running"),
                            ("finished", "finished"),
                            ("cancelled", "cancelled"),
                        ],
                        default="running",
                        max_length=16,
                    ),
                ),
                ("num_tasks", models.PositiveIntegerField()),
                ("samples_per_task", models.PositiveIntegerField()),
                ("num_rewarded", models.PositiveIntegerField(null=True)),
                ("num_sampled_tokens", models.PositiveBigIntegerField(null=True)),
                (
                    "min_version",
                    models.BigIntegerField(
                        help_text="Oldest version that sampled one of its tokens.", null=True
                    ),
                ),
                ("max_version", models.BigIntegerField(null=True)),
                ("reward_mean", models.FloatField(null=True)),
                ("pass_at_1", models.FloatField(null=True)),
                ("pass_at_k", models.JSONField(default=dict, help_text="pass@k estimates by k.")),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "job",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="evaluations", to="jobs.job"
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
                "db_table": "trajectory_evaluation",
                "constraints": [
                    models.UniqueConstraint(fields=("job", "version"), name="trajectory_evaluation_version"),
                    models.UniqueConstraint(
                        condition=models.Q(("state", "running")),
                        fields=("job",),
                        name="trajectory_evaluation_one",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Lull",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
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
                "db_table": "trajectory_lull",
                "indexes": [models.Index(fields=["job", "began_at"], name="trajectory_lull_job")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)), fields=("job",), name="trajectory_lull_open"
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
        migrations.AddIndex(
            model_name="rolloutgroup",
            index=models.Index(
                condition=models.Q(("batch_number__isnull", False)),
                fields=["job", "batch_number"],
                name="trajectory_group_batch",
            ),
        ),
        migrations.AddIndex(
            model_name="rolloutgroup",
            index=models.Index(
                condition=models.Q(("evaluation_version", None), ("finalized_at__isnull", False)),
                fields=["job", "finalized_at"],
                name="trajectory_group_finalized",
            ),
        ),
        migrations.AddConstraint(
            model_name="rolloutgroup",
            constraint=models.UniqueConstraint(
                condition=models.Q(("evaluation_version", None)),
                fields=("job", "index"),
                name="trajectory_group_train_index",
            ),
        ),
        migrations.AddConstraint(
            model_name="rolloutgroup",
            constraint=models.UniqueConstraint(
                condition=models.Q(("evaluation_version__isnull", False)),
                fields=("job", "evaluation_version", "index"),
                name="trajectory_group_eval_index",
            ),
        ),
        migrations.AddConstraint(
            model_name="datasetgroup",
            constraint=models.UniqueConstraint(
                fields=("job", "position"), name="trajectory_dataset_position"
            ),
        ),
        migrations.AddConstraint(
            model_name="datasetgroup",
            constraint=models.UniqueConstraint(fields=("job", "group"), name="trajectory_dataset_group_once"),
        ),
        migrations.AddField(
            model_name="sessionhold",
            name="project",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="accounts.project",
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["job", "opened_at"], name="trajectory_session_job"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("expires_at__isnull", False), ("state", "open")),
                fields=["expires_at"],
                name="trajectory_session_expiry",
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.UniqueConstraint(
                fields=("group", "slot", "attempt"), name="trajectory_session_slot"
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.UniqueConstraint(
                condition=models.Q(("open_key__isnull", False)),
                fields=("project", "open_key"),
                name="trajectory_session_open_key",
            ),
        ),
        migrations.AddConstraint(
            model_name="taskepoch",
            constraint=models.UniqueConstraint(fields=("job", "number"), name="trajectory_epoch_number"),
        ),
        migrations.AddIndex(
            model_name="sessionhold",
            index=models.Index(
                condition=models.Q(("held_since__isnull", False)),
                fields=["gateway"],
                name="trajectory_session_hold_open",
            ),
        ),
        migrations.RunSQL(NODE_TABLE_SQL, reverse_sql="DROP TABLE trajectory_node"),
        migrations.RunSQL(
            HELD_TIME_SQL,
            reverse_sql="ALTER TABLE trajectory_session_hold DROP CONSTRAINT trajectory_session_hold_session",
        ),
    ]
