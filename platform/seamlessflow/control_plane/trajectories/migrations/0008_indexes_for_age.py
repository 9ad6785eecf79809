"""The groups of a batch are found without reading the job's others."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("jobs", "0005_submission_key"),
        ("trajectories", "0007_evaluation_cancelled"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="rolloutgroup",
            index=models.Index(
                condition=models.Q(("batch_number__isnull", False)),
                fields=["job", "batch_number"],
                name="trajectory_group_batch",
            ),
        ),
    ]
