"""The curve of rewards of each job is stored; those of jobs that are there already are made from their groups."""

import django.db.models.deletion
from django.db import migrations, models

# As core.telemetry.curves makes them: the width of a bucket is the least power of two that leaves 48 buckets.
_CURVES = """
    INSERT INTO jobs_rewardcurve (job_id, through, points)
    SELECT job_id, published_batch, jsonb_agg(jsonb_build_array(last, mean, weight) ORDER BY last)
    FROM (
        SELECT j.id AS job_id, j.published_batch, max(g.batch_number) AS last,
               avg(greatest(least(g.reward_mean, 1e300), -1e300)) AS mean, count(g.reward_mean) AS weight
        FROM jobs_job j
        CROSS JOIN LATERAL (
            SELECT min(1::bigint << power) AS width FROM generate_series(0, 62) power
            WHERE (j.published_batch >> power) - (1 >> power) < 48
        ) grid
        JOIN trajectory_group g ON g.job_id = j.id AND g.batch_number BETWEEN 1 AND j.published_batch
        WHERE g.reward_mean IS NOT NULL
        GROUP BY j.id, j.published_batch, g.batch_number / grid.width
    ) points GROUP BY job_id, published_batch
"""


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0007_retention"),
        ("trajectories", "0008_indexes_for_age"),
    ]

    operations = [
        migrations.CreateModel(
            name="RewardCurve",
            fields=[
                (
                    "job",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="stored_curve",
                        serialize=False,
                        to="jobs.job",
                    ),
                ),
                (
                    "through",
                    models.PositiveBigIntegerField(help_text="Published batches up to this one are in it."),
                ),
                ("points", models.JSONField(default=list)),
            ],
        ),
        migrations.RunSQL(_CURVES, migrations.RunSQL.noop),
    ]
