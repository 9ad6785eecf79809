"""The durable account of held time: new tables. Rows of sessions go with their session, by the database itself."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("trajectories", "0008_indexes_for_age"),
    ]

    operations = [
        migrations.CreateModel(
            name="GatewayLife",
            fields=[
                (
                    "gateway",
                    models.TextField(help_text="Its public address.", primary_key=True, serialize=False),
                ),
                ("seen_at", models.DateTimeField()),
            ],
            options={
                "db_table": "trajectory_gateway_life",
            },
        ),
        migrations.CreateModel(
            name="GatewayAbsence",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("gateway", models.TextField()),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField()),
            ],
            options={
                "db_table": "trajectory_gateway_absence",
                "indexes": [
                    models.Index(fields=["gateway", "ended_at"], name="trajectory_gateway_absence_end")
                ],
            },
        ),
        migrations.CreateModel(
            name="SessionHold",
            fields=[
                (
                    "session",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="hold",
                        serialize=False,
                        to="trajectories.session",
                    ),
                ),
                ("gateway", models.TextField(help_text="Public address of the gateway that wrote it.")),
                ("held_s", models.FloatField(default=0.0)),
                (
                    "held_since",
                    models.DateTimeField(
                        help_text="Since when a turn has been held without a break.", null=True
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="accounts.project",
                    ),
                ),
            ],
            options={
                "db_table": "trajectory_session_hold",
                "indexes": [
                    models.Index(
                        condition=models.Q(("held_since__isnull", False)),
                        fields=["gateway"],
                        name="trajectory_session_hold_open",
                    )
                ],
            },
        ),
        migrations.RunSQL(
            """ALTER TABLE trajectory_session_hold ADD CONSTRAINT trajectory_session_hold_session
               FOREIGN KEY (session_id) REFERENCES trajectory_session (id) ON DELETE CASCADE""",
            reverse_sql="ALTER TABLE trajectory_session_hold DROP CONSTRAINT trajectory_session_hold_session",
        ),
    ]
