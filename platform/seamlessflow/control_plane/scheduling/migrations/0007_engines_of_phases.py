"""Every engine of a phase, beside the one endpoint and version that phases had before."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduling", "0006_slow_machines"),
    ]

    operations = [
        migrations.AddField(
            model_name="phase",
            name="engines",
            field=models.JSONField(
                null=True,
                help_text="Rollout: number, endpoint and version of each engine, and why it was lost; null: an older "
                "supervisor, whose only engine is the one of `endpoint` and `served_version`.",
            ),
        ),
        migrations.AlterField(
            model_name="phase",
            name="endpoint",
            field=models.CharField(
                blank=True, default="", help_text="Rollout: base URL of the first front.", max_length=255
            ),
        ),
        migrations.AlterField(
            model_name="phase",
            name="desired_version",
            field=models.PositiveBigIntegerField(
                default=0, help_text="Rollout: the version that the engines should serve."
            ),
        ),
        migrations.AlterField(
            model_name="phase",
            name="served_version",
            field=models.PositiveBigIntegerField(
                help_text="Rollout: the oldest version that an engine of the phase serves.", null=True
            ),
        ),
    ]
