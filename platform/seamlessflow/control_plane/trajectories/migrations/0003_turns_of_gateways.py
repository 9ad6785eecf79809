"""How many turns of each job a gateway has."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("trajectories", "0002_gateways"),
    ]

    operations = [
        migrations.AddField(
            model_name="gateway",
            name="turns",
            field=models.JSONField(
                help_text="How many turns run or wait for an engine, by job; null: unknown.", null=True
            ),
        ),
    ]
