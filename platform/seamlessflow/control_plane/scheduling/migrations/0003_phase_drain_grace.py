"""How long what a draining phase has under way may go on."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0002_phase_next")]

    operations = [
        migrations.AddField(
            model_name="phase",
            name="drain_grace_s",
            field=models.FloatField(
                help_text="Draining: what is under way may go on for so long; null: as it needs.", null=True
            ),
        ),
    ]
