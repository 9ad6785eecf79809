"""A row may stand for several points of a metric: what they were together."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("telemetry", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="metricpoint",
            name="first_step",
            field=models.PositiveBigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="metricpoint",
            name="num_points",
            field=models.PositiveBigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="metricpoint",
            name="value_max",
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name="metricpoint",
            name="value_min",
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name="metricpoint",
            name="value_sum",
            field=models.FloatField(null=True),
        ),
    ]
