"""An evaluation may end with its job: a state more, no change of the table."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("trajectories", "0006_dataset"),
    ]

    operations = [
        migrations.AlterField(
            model_name="evaluation",
            name="state",
            field=models.CharField(
                choices=[("running", "running"), ("finished", "finished"), ("cancelled", "cancelled")],
                default="running",
                max_length=16,
            ),
        ),
    ]
