"""What kind of failure ended a session."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("trajectories", "0004_paces_of_engines"),
    ]

    operations = [
        migrations.AddField(
            model_name="session",
            name="failure",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Its kind of failure; empty: none.",
                max_length=16,
            ),
        ),
    ]
