"""No job fails or gets lost any more: the platform pauses it. Jobs in those states become cancelled and keep their reason."""

from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

FORMER = ("failed", "lost")


def cancel_former(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("jobs", "Job").objects.filter(state__in=FORMER).update(state="cancelled")


class Migration(migrations.Migration):
    dependencies = [("jobs", "0006_model_shape")]

    operations = [
        migrations.RunPython(cancel_former, migrations.RunPython.noop, elidable=True),
        migrations.RemoveIndex(model_name="job", name="job_unfinished"),
        migrations.AlterField(
            model_name="job",
            name="state",
            field=models.CharField(
                choices=[
                    ("queued", "queued"),
                    ("starting", "starting"),
                    ("running", "running"),
                    ("pausing", "pausing"),
                    ("paused", "paused"),
                    ("cancelling", "cancelling"),
                    ("completed", "completed"),
                    ("cancelled", "cancelled"),
                ],
                db_index=True,
                default="queued",
                max_length=16,
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("state__in", ["cancelled", "completed"]), _negated=True),
                fields=["created_at", "id"],
                name="job_unfinished",
            ),
        ),
    ]
