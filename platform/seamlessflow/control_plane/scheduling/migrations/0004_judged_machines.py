"""Why a phase failed, and what is judged of machines that fail phases."""

from django.db import migrations, models
from django.db.models.deletion import CASCADE


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_fleet_shares"),
        ("cluster", "0001_tables"),
        ("jobs", "0002_fleet_shares"),
        ("scheduling", "0003_read_again"),
    ]

    operations = [
        migrations.CreateModel(
            name="MachineJudgement",
            fields=[
                (
                    "machine",
                    models.OneToOneField(
                        on_delete=CASCADE,
                        primary_key=True,
                        related_name="judgement",
                        serialize=False,
                        to="cluster.machine",
                    ),
                ),
                ("quarantined_at", models.DateTimeField(null=True)),
                (
                    "until_at",
                    models.DateTimeField(
                        help_text="From then on, one phase tries out whether the machine works again.",
                        null=True,
                    ),
                ),
                (
                    "reason",
                    models.TextField(blank=True, default="", help_text="Why it was quarantined last."),
                ),
                (
                    "num_quarantines",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="Number of quarantines without good work in between; each is twice as long.",
                    ),
                ),
                (
                    "judged_fence",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Failures of phases up to this fence are judged."
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="phase",
            name="failure_cause",
            field=models.CharField(
                blank=True,
                choices=[("work", "work"), ("silence", "silence"), ("gang", "gang")],
                db_default="",
                default="",
                help_text="Failed: why. Only `work` says something about the job or the machine.",
                max_length=16,
            ),
        ),
        migrations.AddIndex(
            model_name="phase",
            index=models.Index(
                condition=models.Q(("failure_cause", "work")),
                fields=["ended_at"],
                name="phase_failed_by_work",
            ),
        ),
    ]
