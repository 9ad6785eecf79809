"""Times in which nothing more of a job waited."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("jobs", "0005_submission_key"),
        ("trajectories", "0009_held_time"),
    ]

    operations = [
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
    ]
