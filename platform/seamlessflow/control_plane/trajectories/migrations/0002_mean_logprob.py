"""Forests seen from afar colour an answer by its mean logprob; older rows have none."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0001_initial")]

    operations = [
        migrations.RunSQL(
            "ALTER TABLE trajectory_node ADD COLUMN mean_logprob real",
            reverse_sql="ALTER TABLE trajectory_node DROP COLUMN mean_logprob",
        ),
    ]
