"""When a group was settled: the order in which a job's newest groups are read to see whether its agents fail."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0011_external_sessions")]

    operations = [
        migrations.AddField(
            model_name="rolloutgroup",
            name="settled_at",
            field=models.DateTimeField(help_text="When no session of it could run any more.", null=True),
        ),
        migrations.AddIndex(
            model_name="rolloutgroup",
            index=models.Index(
                condition=models.Q(("evaluation_version", None), ("settled_at__isnull", False)),
                fields=["job", "settled_at"],
                name="trajectory_group_settled",
            ),
        ),
    ]
