"""The tables of `telemetry`."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        ("cluster", "0001_tables"),
        ("jobs", "0001_tables"),
        ("scheduling", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="LedgerInterval",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("boot_id", models.UUIDField(help_text="Null if the server filled a gap.", null=True)),
                ("seq", models.PositiveBigIntegerField(null=True)),
                ("state", models.CharField(max_length=16)),
                ("cause", models.CharField(blank=True, default="", max_length=24)),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField()),
                ("mean_in_flight", models.FloatField(null=True)),
                (
                    "num_slots",
                    models.PositiveIntegerField(
                        help_text=(
                            "Serving: the number of requests that the engine decodes at once (rollout.max_num_seqs)."
                        ),
                        null=True,
                    ),
                ),
                (
                    "num_intervals",
                    models.PositiveIntegerField(
                        help_text=(
                            "Rolled up: the number of intervals that it replaces. Its duration is the sum of theirs."
                        ),
                        null=True,
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="jobs.job",
                    ),
                ),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="intervals",
                        to="cluster.machine",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="accounts.project",
                    ),
                ),
            ],
            options={
                "ordering": ["machine", "started_at"],
                "indexes": [
                    models.Index(fields=["machine", "ended_at"], name="ledger_machine_end"),
                    models.Index(fields=["ended_at"], name="ledger_end"),
                    models.Index(
                        condition=models.Q(("num_intervals__isnull", False)),
                        fields=["machine", "-started_at"],
                        name="ledger_rolled_up",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("machine", "boot_id", "seq"), name="ledger_interval_once"
                    ),
                    models.UniqueConstraint(fields=("machine", "started_at"), name="ledger_interval_start"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "idle"), models.Q(("cause", ""), _negated=True)),
                            models.Q(models.Q(("state", "idle"), _negated=True), ("cause", "")),
                            _connector="OR",
                        ),
                        name="ledger_cause_iff_idle",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LogChunk",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("stream", models.CharField(max_length=16)),
                ("offset", models.PositiveBigIntegerField()),
                ("num_bytes", models.PositiveIntegerField()),
                ("data", models.BinaryField()),
                ("at", models.DateTimeField(auto_now_add=True)),
                (
                    "phase",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="log_chunks",
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
                "constraints": [
                    models.UniqueConstraint(fields=("phase", "stream", "offset"), name="log_chunk_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="MetricPoint",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=120)),
                ("step", models.PositiveBigIntegerField()),
                ("value", models.FloatField()),
                ("at", models.DateTimeField(auto_now_add=True)),
                ("first_step", models.PositiveBigIntegerField(null=True)),
                ("num_points", models.PositiveBigIntegerField(null=True)),
                ("value_min", models.FloatField(null=True)),
                ("value_max", models.FloatField(null=True)),
                ("value_sum", models.FloatField(null=True)),
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
                "constraints": [
                    models.UniqueConstraint(fields=("job", "name", "step"), name="metric_point_unique")
                ],
            },
        ),
    ]
