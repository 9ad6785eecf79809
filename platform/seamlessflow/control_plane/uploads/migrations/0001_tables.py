"""The table of `uploads`."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import seamlessflow.control_plane.common.ids


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Artifact",
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
                ("name", models.CharField(max_length=255)),
                (
                    "uri",
                    models.CharField(
                        help_text="Location of the file or folder under ARTIFACT_ROOT.", max_length=1024
                    ),
                ),
                (
                    "is_archive",
                    models.BooleanField(
                        default=False, help_text=("Whether it is a tar that was unpacked into a folder.")
                    ),
                ),
                ("num_bytes", models.BigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "last_used_at",
                    models.DateTimeField(
                        help_text=("When the last job that used it was deleted."), null=True
                    ),
                ),
                (
                    "deleted_at",
                    models.DateTimeField(
                        help_text="When it was deleted; from then on no job may name it.", null=True
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="artifacts",
                        to="accounts.project",
                    ),
                ),
            ],
        ),
    ]
