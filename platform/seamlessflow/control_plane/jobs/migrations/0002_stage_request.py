"""The stage that a person asked for: new columns only."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="stage_request",
            field=models.PositiveIntegerField(db_default=0, default=0, help_text="Counts such requests."),
        ),
        migrations.AddField(
            model_name="job",
            name="stage_requested",
            field=models.PositiveIntegerField(
                help_text="Index of the stage that a person asked for last.", null=True
            ),
        ),
    ]
