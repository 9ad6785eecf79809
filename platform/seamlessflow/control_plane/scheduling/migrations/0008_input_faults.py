"""A cause of failure more: what the job names would fail on every machine."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduling", "0007_engines_of_phases"),
    ]

    operations = [
        migrations.AlterField(
            model_name="phase",
            name="failure_cause",
            field=models.CharField(
                blank=True,
                choices=[("work", "work"), ("input", "input"), ("silence", "silence"), ("gang", "gang")],
                db_default="",
                default="",
                help_text="Failed: why. Only `work` may be the fault of the machine.",
                max_length=16,
            ),
        ),
    ]
