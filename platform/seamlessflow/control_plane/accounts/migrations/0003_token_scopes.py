"""Scopes of tokens, and tokens for the installation. Tokens of before keep what they could be used for in a project."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_initial"),
        ("cluster", "0002_heartbeat_num_in_flight"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="token",
            name="token_subject_fits_kind",
        ),
        migrations.AddField(
            model_name="token",
            name="scopes",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=16),
                db_default=["read", "submit", "sessions", "admin"],
                default=list,
                help_text="What an API token may be used for; it never adds to what its user may do.",
                size=None,
            ),
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
