"""The key under which a job was submitted: a new column that may be empty, and at most one job for a key."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0004_recorded_data"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="submission_key",
            field=models.CharField(
                help_text="Idempotency-Key of the request that made it.", max_length=200, null=True
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                fields=("project", "submission_key"), name="one_job_per_submission_key"
            ),
        ),
    ]
