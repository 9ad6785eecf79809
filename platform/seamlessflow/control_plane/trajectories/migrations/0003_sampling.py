"""Why groups were dropped, which batch counts them as waste, and the epochs of chosen tasks: new columns and a table only."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("jobs", "0002_stage_request"),
        ("trajectories", "0002_mean_logprob"),
    ]

    operations = [
        migrations.AddField(
            model_name="rolloutgroup",
            name="drop_cause",
            field=models.CharField(
                blank=True,
                choices=[("verdicts", "verdicts"), ("no_contrast", "no_contrast"), ("stale", "stale")],
                db_default="",
                default="",
                help_text="Why it was dropped.",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="rolloutgroup",
            name="replaced_for",
            field=models.PositiveBigIntegerField(
                help_text="Dropped: the batch that was made meanwhile, which counts it as waste.", null=True
            ),
        ),
        migrations.CreateModel(
            name="TaskEpoch",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("number", models.PositiveIntegerField(help_text="0, 1, 2, … of the job.")),
                ("stage", models.PositiveIntegerField(default=0, help_text="Index into algorithm.stages.")),
                (
                    "stage_request",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="jobs.Job.stage_request when it was made: later ones start a new epoch.",
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
                "constraints": [
                    models.UniqueConstraint(fields=("job", "number"), name="trajectory_epoch_number")
                ],
            },
        ),
    ]
