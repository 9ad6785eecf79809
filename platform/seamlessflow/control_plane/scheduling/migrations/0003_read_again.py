"""Phases know what it cost that their turns moved."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0002_fleet_shares"),
        ("scheduling", "0002_fleet_shares"),
    ]

    operations = [
        migrations.AddField(
            model_name="phase",
            name="num_read_again_tokens",
            field=models.PositiveBigIntegerField(
                db_default=0,
                default=0,
                help_text="Rollout: tokens that other engines had to read again because turns left this one.",
            ),
        ),
        migrations.AddIndex(
            model_name="phase",
            index=models.Index(
                condition=models.Q(("next_job__isnull", False), ("num_read_again_tokens__gt", 0)),
                fields=["next_job"],
                name="phase_taken_over",
            ),
        ),
    ]
