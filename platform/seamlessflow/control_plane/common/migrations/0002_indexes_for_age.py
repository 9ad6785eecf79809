"""Events are found by age, and edits of machines among millions of others."""

import django.contrib.postgres.indexes
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("common", "0001_initial"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                condition=models.Q(("kind", "machine.edited")), fields=["at"], name="event_machine_edited"
            ),
        ),
        migrations.AddIndex(
            model_name="event",
            index=django.contrib.postgres.indexes.BrinIndex(fields=["at"], name="event_age"),
        ),
    ]
