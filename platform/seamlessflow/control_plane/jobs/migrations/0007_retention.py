"""What of a job was deleted."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0006_self_pause"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="deleted_at",
            field=models.DateTimeField(help_text="From then on nobody sees it.", null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="kept_summary",
            field=models.JSONField(
                help_text="Its summary, as it was when its trajectories were deleted.", null=True
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="logs_deleted_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="metrics_rolled_up_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="trajectories_deleted_at",
            field=models.DateTimeField(
                help_text="From then on its tokens and messages are not shown; groups and rewards stay.",
                null=True,
            ),
        ),
    ]
