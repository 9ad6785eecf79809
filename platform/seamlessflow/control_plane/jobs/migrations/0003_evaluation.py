"""Where a job's held-out tasks are: a new column with a default."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0002_stage_request"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="evaluation_tasks_path",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Local file of held-out tasks, resolved.",
                max_length=1024,
            ),
        ),
    ]
