"""What a job trains of recorded trajectories, and a digest of its tokenizer: new columns with defaults."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0003_evaluation"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="dataset",
            field=models.JSONField(
                help_text="What was chosen of recorded trajectories (data.source), and what was not.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="tokenizer_sha256",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Of what its tokenizer makes of ids: equal digests, equal meaning of recorded tokens.",
                max_length=64,
            ),
        ),
    ]
