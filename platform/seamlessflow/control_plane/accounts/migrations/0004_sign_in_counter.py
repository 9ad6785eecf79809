"""Counters of failed sign-ins."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_token_scopes"),
    ]

    operations = [
        migrations.CreateModel(
            name="SignInCounter",
            fields=[
                (
                    "key",
                    models.CharField(
                        help_text="SHA-256 of place and name, hex.",
                        max_length=64,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("num", models.PositiveIntegerField()),
                ("expires_at", models.DateTimeField(db_index=True)),
            ],
        ),
    ]
