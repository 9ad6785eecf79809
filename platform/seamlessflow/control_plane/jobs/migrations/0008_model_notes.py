"""Jobs know what does not work with the chat template of their model."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0007_no_failed_jobs"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="model_notes",
            field=models.JSONField(
                default=list,
                db_default=[],
                help_text="Sentences on what does not work with the model's chat template, or was not shown to work.",
            ),
        ),
    ]
