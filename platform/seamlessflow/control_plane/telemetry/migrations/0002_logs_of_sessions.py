"""Lets the store of logs keep those of sessions beside those of phases."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_fleet_shares"),
        ("scheduling", "0007_engines_of_phases"),
        ("telemetry", "0001_tables"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="logchunk",
            name="log_chunk_once",
        ),
        migrations.AddField(
            model_name="logchunk",
            name="session_id",
            field=models.UUIDField(help_text="Null: the log of the phase itself.", null=True),
        ),
        migrations.AddConstraint(
            model_name="logchunk",
            constraint=models.UniqueConstraint(
                condition=models.Q(("session_id", None)),
                fields=("phase", "stream", "offset"),
                name="log_chunk_of_phase_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="logchunk",
            constraint=models.UniqueConstraint(
                condition=models.Q(("session_id__isnull", False)),
                fields=("session_id", "offset"),
                name="log_chunk_of_session_once",
            ),
        ),
    ]
