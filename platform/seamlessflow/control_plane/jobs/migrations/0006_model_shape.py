"""Jobs know the shape of their model, so that no machine is chosen whose devices are too small for it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0005_owed"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="model_shape",
            field=models.JSONField(
                help_text="What the model's need of memory follows from; null if that is not known.",
                null=True,
            ),
        ),
    ]
