"""The last minutes of all machines are found without reading their past."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("cluster", "0002_heartbeat_num_in_flight"),
        ("jobs", "0005_submission_key"),
        ("telemetry", "0002_rolled_up_points"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="ledgerinterval",
            index=models.Index(fields=["ended_at"], name="ledger_end"),
        ),
    ]
