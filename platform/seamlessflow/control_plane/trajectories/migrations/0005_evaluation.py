"""Evaluations, and groups that belong to one: a table, a column, and indexes of groups counted apart from training's."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("jobs", "0003_evaluation"),
        ("trajectories", "0004_session_handed_back"),
    ]

    operations = [
        migrations.CreateModel(
            name="Evaluation",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("version", models.PositiveBigIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[("running", "running"), ("finished", "finished")],
                        default="running",
                        max_length=16,
                    ),
                ),
                ("num_tasks", models.PositiveIntegerField()),
                ("samples_per_task", models.PositiveIntegerField()),
                ("num_verdicts", models.PositiveIntegerField(null=True)),
                ("num_sampled_tokens", models.PositiveBigIntegerField(null=True)),
                (
                    "min_version",
                    models.BigIntegerField(help_text="Oldest version that sampled a token of it.", null=True),
                ),
                ("max_version", models.BigIntegerField(null=True)),
                ("reward_mean", models.FloatField(null=True)),
                ("pass_at_1", models.FloatField(null=True)),
                ("pass_at_k", models.JSONField(default=dict, help_text="Estimates by k.")),
                ("started_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "trajectory_evaluation",
            },
        ),
        migrations.RemoveConstraint(
            model_name="rolloutgroup",
            name="trajectory_group_index",
        ),
        migrations.AddField(
            model_name="rolloutgroup",
            name="evaluation_version",
            field=models.PositiveBigIntegerField(
                help_text="Held out: the evaluation of this version it belongs to. Never trained.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="rolloutgroup",
            name="state",
            field=models.CharField(
                choices=[
                    ("open", "open"),
                    ("ready", "ready"),
                    ("batched", "batched"),
                    ("dropped", "dropped"),
                    ("evaluating", "evaluating"),
                    ("evaluated", "evaluated"),
                ],
                default="open",
                max_length=16,
            ),
        ),
        migrations.AddConstraint(
            model_name="rolloutgroup",
            constraint=models.UniqueConstraint(
                condition=models.Q(("evaluation_version", None)),
                fields=("job", "index"),
                name="trajectory_group_train_index",
            ),
        ),
        migrations.AddConstraint(
            model_name="rolloutgroup",
            constraint=models.UniqueConstraint(
                condition=models.Q(("evaluation_version__isnull", False)),
                fields=("job", "evaluation_version", "index"),
                name="trajectory_group_eval_index",
            ),
        ),
        migrations.AddField(
            model_name="evaluation",
            name="job",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="evaluations", to="jobs.job"
            ),
        ),
        migrations.AddField(
            model_name="evaluation",
            name="project",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.project"
            ),
        ),
        migrations.AddConstraint(
            model_name="evaluation",
            constraint=models.UniqueConstraint(
                fields=("job", "version"), name="trajectory_evaluation_version"
            ),
        ),
        migrations.AddConstraint(
            model_name="evaluation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "running")), fields=("job",), name="trajectory_evaluation_one"
            ),
        ),
    ]
