"""A machine may go on with another job when a phase ends."""

from django.db import migrations, models
from django.db.models.deletion import SET_NULL


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0002_fleet_shares"),
        ("scheduling", "0001_tables"),
    ]

    operations = [
        migrations.AddField(
            model_name="phase",
            name="next_job",
            field=models.ForeignKey(
                db_index=False,
                help_text="The job that the machine works for next; null: the same one.",
                null=True,
                on_delete=SET_NULL,
                related_name="+",
                to="jobs.job",
            ),
        ),
    ]
