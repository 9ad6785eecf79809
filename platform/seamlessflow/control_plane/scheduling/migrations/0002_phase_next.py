"""What a machine turns to when a phase ends, decided ahead; the last phases of a job in one role."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("cluster", "0002_heartbeat_num_in_flight"),
        ("jobs", "0001_initial"),
        ("scheduling", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="phase",
            name="next_num_batches",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="phase",
            name="next_reason",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
        migrations.AddField(
            model_name="phase",
            name="next_role",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="What the machine turns to when this ends.",
                max_length=16,
            ),
        ),
        migrations.AddIndex(
            model_name="phase",
            index=models.Index(fields=["job", "role", "-leased_at"], name="phase_job_role_leased"),
        ),
    ]
