"""Phases of a gang know which one, and which member of it they are."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduling", "0003_phase_drain_grace"),
    ]

    operations = [
        migrations.AddField(
            model_name="phase",
            name="gang_id",
            field=models.UUIDField(
                db_index=True,
                help_text="Train: the phases of one gang, on several machines, share it.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="phase",
            name="gang_member",
            field=models.PositiveSmallIntegerField(
                help_text="Of a gang: 0 leads; the ranks follow.", null=True
            ),
        ),
    ]
