"""The tables of `cluster`."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

import seamlessflow.control_plane.common.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="Machine",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=seamlessflow.control_plane.common.ids.new_id,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.CharField(max_length=63, unique=True)),
                (
                    "tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=63), default=list, size=None
                    ),
                ),
                ("pool", models.CharField(default="default", max_length=63)),
                ("generation", models.PositiveBigIntegerField(default=1)),
                (
                    "is_cordoned",
                    models.BooleanField(default=False, help_text="The machine gets no new phases."),
                ),
                (
                    "is_draining",
                    models.BooleanField(
                        default=False, help_text="Its running phases are handed over and ended."
                    ),
                ),
                ("reason", models.TextField(blank=True, default="", help_text="Reason of the last edit.")),
                ("edited_by", models.CharField(blank=True, default="", max_length=150)),
                (
                    "last_fence",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Fence of the newest phase. It only grows."
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="MachineHeartbeat",
            fields=[
                (
                    "machine",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="heartbeat",
                        serialize=False,
                        to="cluster.machine",
                    ),
                ),
                ("boot_id", models.UUIDField()),
                ("anchor_at", models.DateTimeField()),
                ("received_at", models.DateTimeField(db_index=True)),
                ("num_intervals_acked", models.PositiveBigIntegerField(default=0)),
                ("open_state", models.CharField(blank=True, default="", max_length=16)),
                ("open_cause", models.CharField(blank=True, default="", max_length=24)),
                ("open_since_at", models.DateTimeField(null=True)),
                (
                    "num_in_flight",
                    models.PositiveIntegerField(
                        help_text=(
                            "Number of requests at the front of its rollout phase; null if it has no such "
                            "phase."
                        ),
                        null=True,
                    ),
                ),
                ("capabilities", models.JSONField(default=dict)),
            ],
        ),
        migrations.CreateModel(
            name="PoolGrant",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=seamlessflow.control_plane.common.ids.new_id,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("pool", models.CharField(max_length=63)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="pool_grants",
                        to="accounts.project",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("pool", "project"), name="pool_grant_unique")
                ],
            },
        ),
    ]
