"""The versions of which files are kept are found among many more of which they were deleted."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("policies", "0001_initial"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="policyversion",
            index=models.Index(
                condition=models.Q(("deleted_at", None)),
                fields=["job", "version"],
                name="policy_version_kept",
            ),
        ),
    ]
