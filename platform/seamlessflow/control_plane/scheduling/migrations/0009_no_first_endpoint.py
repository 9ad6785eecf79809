"""A phase has a list of engines, and no endpoint beside it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduling", "0008_input_faults"),
    ]

    operations = [
        migrations.RemoveField(model_name="phase", name="endpoint"),
        migrations.AlterField(
            model_name="phase",
            name="engines",
            field=models.JSONField(
                help_text="Rollout: number, endpoint and version of each engine, and why it was lost.",
                null=True,
            ),
        ),
    ]
