"""How fast engines sample while they are full, as each gateway sees it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("trajectories", "0003_turns_of_gateways"),
    ]

    operations = [
        migrations.AddField(
            model_name="gateway",
            name="paces",
            field=models.JSONField(help_text="Tokens and seconds of full engines; null: unknown.", null=True),
        ),
    ]
