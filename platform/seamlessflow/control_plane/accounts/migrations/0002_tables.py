"""What of `accounts` refers to machines, which in turn refer to projects."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        ("cluster", "0001_tables"),
    ]

    operations = [
        migrations.AddField(
            model_name="token",
            name="machine",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="tokens",
                to="cluster.machine",
            ),
        ),
        migrations.AddField(
            model_name="token",
            name="project",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="tokens",
                to="accounts.project",
            ),
        ),
        migrations.AddField(
            model_name="token",
            name="user",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="tokens",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(fields=("user", "project"), name="membership_unique"),
        ),
        migrations.AddConstraint(
            model_name="token",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "api"), ("user__isnull", False)),
                    models.Q(("kind", "machine"), ("machine__isnull", False)),
                    models.Q(("kind", "sign_in"), ("user__isnull", False)),
                    _connector="OR",
                ),
                name="token_subject_fits_kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="token",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("project__isnull", True),
                    models.Q(("scopes__contains", ["operate"]), _negated=True),
                    _connector="OR",
                ),
                name="token_of_project_not_for_machines",
            ),
        ),
    ]
