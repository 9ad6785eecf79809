"""Events may concern accounts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("common", "0001_tables"),
    ]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="subject_type",
            field=models.CharField(
                choices=[
                    ("job", "Job"),
                    ("machine", "Machine"),
                    ("phase", "Phase"),
                    ("version", "Version"),
                    ("group", "Group"),
                    ("session", "Session"),
                    ("token", "Token"),
                    ("artifact", "Artifact"),
                    ("project", "Project"),
                    ("account", "Account"),
                ],
                max_length=16,
            ),
        ),
    ]
