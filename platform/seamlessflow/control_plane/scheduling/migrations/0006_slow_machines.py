"""Which machines were quarantined for rolling out slowly."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduling", "0005_agent_slots"),
    ]

    operations = [
        migrations.AddField(
            model_name="machinejudgement",
            name="is_slow",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="It rolled out slowly, so only the pace of a phase clears it.",
            ),
        ),
    ]
