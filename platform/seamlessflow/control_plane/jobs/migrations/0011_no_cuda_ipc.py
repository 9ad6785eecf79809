"""The transport `cuda_ipc` exists no longer: stored jobs that name it get `ipc`, which serves the same hosts."""

from django.db import migrations

REPLACE = """
    UPDATE jobs_job SET spec = jsonb_set(spec, '{train,weight_transport}', '"ipc"')
    WHERE spec->'train'->>'weight_transport' = 'cuda_ipc'
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0010_turns_of_own_loops")]

    operations = [migrations.RunSQL(REPLACE, migrations.RunSQL.noop, elidable=True)]
