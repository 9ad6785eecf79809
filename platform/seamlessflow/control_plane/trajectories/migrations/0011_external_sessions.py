"""Sessions of agents outside the platform: until when they may be silent, and by which request they were opened."""

from django.db import migrations, models

# Those that are open at the time of the upgrade get the default of the job spec.
_GIVE_TIME = """
    UPDATE trajectory_session s SET expires_at = now() + interval '900 seconds' FROM jobs_job j
    WHERE j.id = s.job_id AND s.state = 'open' AND j.spec->'environment'->>'name' = 'external'"""


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0010_lull")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="expires_at",
            field=models.DateTimeField(
                help_text="External: open, it expires then; its calls put it off.", null=True
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="open_key",
            field=models.CharField(
                help_text="External: Idempotency-Key of the request that opened it.",
                max_length=200,
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="open_digest",
            field=models.BinaryField(help_text="SHA-256 of the body of that request.", null=True),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.UniqueConstraint(
                condition=models.Q(("open_key__isnull", False)),
                fields=("project", "open_key"),
                name="trajectory_session_open_key",
            ),
        ),
        migrations.RunSQL(_GIVE_TIME, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("expires_at__isnull", False), ("state", "open")),
                fields=["expires_at"],
                name="trajectory_session_expiry",
            ),
        ),
    ]
