"""Jobs that are not over have an index of their own (decision 0049)."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_fleet_shares"),
        ("jobs", "0003_priority"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(
                    ("state__in", ["cancelled", "completed", "failed", "lost"]), _negated=True
                ),
                fields=["created_at", "id"],
                name="job_unfinished",
            ),
        ),
    ]
