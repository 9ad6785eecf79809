"""Gateways and their epochs; which epoch may write a session."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_tables"),
        ("jobs", "0001_tables"),
        ("trajectories", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="Gateway",
            fields=[
                ("epoch", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "name",
                    models.TextField(
                        help_text="The address at which the other gateways reach it.", unique=True
                    ),
                ),
                ("public_url", models.TextField(help_text="The address that its sessions are told.")),
                (
                    "seen_at",
                    models.DateTimeField(help_text="Its last sign of life, by the database's clock."),
                ),
                (
                    "demands",
                    models.JSONField(
                        default=dict, help_text="How many turns it has for each engine, by phase."
                    ),
                ),
            ],
            options={
                "db_table": "trajectory_gateway",
            },
        ),
        migrations.DeleteModel(
            name="GatewayAbsence",
        ),
        migrations.DeleteModel(
            name="GatewayLife",
        ),
        migrations.AddField(
            model_name="session",
            name="gateway_epoch",
            field=models.BigIntegerField(
                help_text="The only epoch of a gateway that may write its turns; null until one claims it.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="sessionhold",
            name="away_s",
            field=models.FloatField(
                db_default=0.0,
                default=0.0,
                help_text="Seconds for which its gateway was down, blocked or cut off.",
            ),
        ),
        migrations.AlterField(
            model_name="sessionhold",
            name="gateway",
            field=models.TextField(help_text="Name of the gateway that wrote it."),
        ),
        migrations.AlterField(
            model_name="sessionhold",
            name="held_s",
            field=models.FloatField(default=0.0, help_text="Seconds for which its turns waited for engines."),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("state", "open")),
                fields=["gateway_epoch"],
                name="trajectory_session_gateway",
            ),
        ),
    ]
