"""Time for which a job was paused."""

from datetime import timedelta

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0008_model_notes")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="paused_at",
            field=models.DateTimeField(help_text="Since when it is paused; null if it is not.", null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="paused_for",
            field=models.DurationField(
                db_default=timedelta(0),
                default=timedelta(0),
                help_text="How long it was paused between its start and its last move.",
            ),
        ),
    ]
