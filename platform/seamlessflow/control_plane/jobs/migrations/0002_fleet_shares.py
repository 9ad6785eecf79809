"""When a job entered the queue last, and when it left it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0001_tables"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="admitted_at",
            field=models.DateTimeField(help_text="When it left the queue last.", null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="queued_at",
            field=models.DateTimeField(
                help_text="When it entered the queue last, if not by its submission.", null=True
            ),
        ),
    ]
