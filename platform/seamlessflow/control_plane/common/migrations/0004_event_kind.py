"""The kinds of events, and the newest events of a kind, are found without reading the others."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_token_scopes"),
        ("common", "0003_retention"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["kind", "id"], name="event_kind"),
        ),
    ]
