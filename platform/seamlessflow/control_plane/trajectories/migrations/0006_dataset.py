"""Recorded groups that a job trains on: a new table."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("jobs", "0004_recorded_data"),
        ("trajectories", "0005_evaluation"),
    ]

    operations = [
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
                        base_field=models.UUIDField(), help_text="By slot and attempt.", size=None
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
                "db_table": "trajectory_dataset",
                "constraints": [
                    models.UniqueConstraint(fields=("job", "position"), name="trajectory_dataset_position"),
                    models.UniqueConstraint(fields=("job", "group"), name="trajectory_dataset_group_once"),
                ],
            },
        ),
    ]
