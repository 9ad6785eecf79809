"""Phases are counted by role and state from an index alone."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduling", "0004_phase_gang"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="phase",
            index=models.Index(fields=["role", "state"], name="phase_role_state"),
        ),
    ]
