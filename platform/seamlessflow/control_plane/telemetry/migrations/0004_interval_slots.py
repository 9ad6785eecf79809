"""How full an engine was is judged by what it decodes at once."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("telemetry", "0003_indexes_for_age"),
    ]

    operations = [
        migrations.AddField(
            model_name="ledgerinterval",
            name="num_slots",
            field=models.PositiveIntegerField(
                help_text="Serving: how many requests its engine decodes at once (rollout.max_num_seqs).",
                null=True,
            ),
        ),
    ]
