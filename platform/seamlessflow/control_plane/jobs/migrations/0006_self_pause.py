"""Why the platform paused a job by itself, and since when its groups count again: two columns."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0005_submission_key")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="pause_reason",
            field=models.TextField(
                blank=True,
                db_default="",
                default="",
                help_text="Why the platform itself asked for the pause.",
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="resumed_at",
            field=models.DateTimeField(
                help_text="When it was last asked to go on: what failed before no longer counts.", null=True
            ),
        ),
    ]
