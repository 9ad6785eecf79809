"""Hours of the ledger that were rolled up."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("cluster", "0002_heartbeat_num_in_flight"),
        ("jobs", "0007_retention"),
        ("telemetry", "0004_interval_slots"),
    ]

    operations = [
        migrations.AddField(
            model_name="ledgerinterval",
            name="num_intervals",
            field=models.PositiveIntegerField(
                help_text="Rolled up: how many it stands for. Its duration is the sum of theirs.", null=True
            ),
        ),
        migrations.AddIndex(
            model_name="ledgerinterval",
            index=models.Index(
                condition=models.Q(("num_intervals__isnull", False)),
                fields=["machine", "-started_at"],
                name="ledger_rolled_up",
            ),
        ),
    ]
