"""The weight and the quota of a project."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_tables"),
    ]

    operations = [
        migrations.AddField(
            model_name="project",
            name="machine_quota",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="The most machines that its jobs may hold together. Empty: no limit.",
                null=True,
                validators=[MinValueValidator(1)],
            ),
        ),
        migrations.AddField(
            model_name="project",
            name="weight",
            field=models.FloatField(
                db_default=1.0,
                default=1.0,
                help_text="Its share of the machines, in proportion to the weights of other projects whose jobs want them.",
                validators=[
                    MinValueValidator(0.01),
                    MaxValueValidator(100.0),
                ],
            ),
        ),
    ]
