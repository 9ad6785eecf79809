"""A machine runs agents of several jobs beside one phase that rolls out or trains.

The new constraints allow all that the old one did, so a process of the version before goes on with this schema.
"""

from django.db import migrations, models

_LIVE = models.Q(state__in=["active", "draining", "leased", "starting"])
_EXCLUSIVE = models.Q(role__in=["rollout", "train"])


class Migration(migrations.Migration):
    dependencies = [
        ("scheduling", "0004_judged_machines"),
    ]

    operations = [
        migrations.AddConstraint(
            model_name="phase",
            constraint=models.UniqueConstraint(
                fields=["machine"], condition=_LIVE & _EXCLUSIVE, name="phase_one_exclusive_live"
            ),
        ),
        migrations.AddConstraint(
            model_name="phase",
            constraint=models.UniqueConstraint(
                fields=["machine", "job"],
                condition=_LIVE & models.Q(role="agent"),
                name="phase_one_agents_live",
            ),
        ),
        migrations.AddIndex(
            model_name="phase",
            index=models.Index(
                fields=["machine", "-fence"], condition=_EXCLUSIVE, name="phase_exclusive_newest"
            ),
        ),
        migrations.RemoveConstraint(model_name="phase", name="phase_one_live_per_machine"),
    ]
