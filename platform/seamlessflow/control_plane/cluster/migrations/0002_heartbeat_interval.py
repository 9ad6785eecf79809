"""Machines are told how often to send heartbeats, and a heartbeat touches no index (decision 0049)."""

from django.db import migrations, models

# A row's versions need room on its page, or PostgreSQL puts the new one elsewhere and tells every index.
_ROOM = "ALTER TABLE cluster_machineheartbeat SET (fillfactor = 50)"
_NO_ROOM = "ALTER TABLE cluster_machineheartbeat RESET (fillfactor)"


class Migration(migrations.Migration):
    dependencies = [("cluster", "0001_tables")]

    operations = [
        migrations.AddField(
            model_name="machineheartbeat",
            name="interval_s",
            field=models.FloatField(
                default=1.0,
                db_default=1.0,
                help_text="Time until the next heartbeat, as the machine was told.",
            ),
        ),
        migrations.AlterField(
            model_name="machineheartbeat", name="received_at", field=models.DateTimeField()
        ),
        migrations.RunSQL(_ROOM, _NO_ROOM),
    ]
