"""How far a project's priorities count against other projects, and how many jobs it may have in the queue."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_fleet_shares"),
    ]

    operations = [
        migrations.AddField(
            model_name="project",
            name="priority_ceiling",
            field=models.SmallIntegerField(
                db_default=0,
                default=0,
                help_text="Up to which the priorities of its jobs count against the jobs of other projects.",
                validators=[MinValueValidator(-100), MaxValueValidator(100)],
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="queued_jobs_quota",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="The most jobs that it may have in the queue. Empty: as many as the installation allows.",
                null=True,
                validators=[MinValueValidator(1)],
            ),
        ),
    ]
