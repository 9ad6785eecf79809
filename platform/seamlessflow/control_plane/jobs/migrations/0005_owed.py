"""Jobs are owed machine time that others had."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0004_unfinished"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="owed",
            field=models.SmallIntegerField(
                db_default=0,
                default=0,
                help_text="1: it had too little machine time and gets a machine more for a while; -1: one less.",
            ),
        ),
    ]
