"""Sessions that a drain of their runner handed back: no try of their task's three."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0003_sampling")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="is_handed_back",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="Cut by a drain of its runner: no try of the task's three.",
            ),
        ),
    ]
