"""`environment.max_turns` bound no program with a loop of its own; stored jobs keep the usual 8 no longer, but get 1000.

Without this, sessions of jobs that are at work during an upgrade would end after eight turns.
"""

from django.db import migrations

RAISE = """
    UPDATE jobs_job SET spec = jsonb_set(spec, '{environment,max_turns}', '1000')
    WHERE spec->'environment'->>'name' IN ('command', 'external') AND spec->'environment'->'max_turns' = '8'
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0009_paused_time")]

    operations = [migrations.RunSQL(RAISE, migrations.RunSQL.noop, elidable=True)]
