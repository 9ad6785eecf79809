"""Requests in flight at a machine's front, for previews of edits."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("cluster", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="machineheartbeat",
            name="num_in_flight",
            field=models.PositiveIntegerField(
                help_text="Requests at the front of its rollout phase; null without one.", null=True
            ),
        ),
    ]
