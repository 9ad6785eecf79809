"""Retention policies, stored checkpoints and the bytes of each job's data, kept by the background process.

Nothing here is measured in a request. `StoredUsage` is exact when `measured_at` is later than the job's end.
"""

from django.db import models

from seamlessflow.control_plane.common.ids import new_id


class RetentionPolicy(models.Model):
    """A project's own values of `core.retention.policy.SETTINGS`; the installation's if the project is null."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.OneToOneField(
        "accounts.Project", null=True, blank=True, on_delete=models.CASCADE, related_name="retention_policy"
    )
    settings = models.JSONField(
        default=dict, blank=True, help_text="Days by name of the setting; null: forever."
    )
    edited_by = models.CharField(max_length=150, blank=True, default="")
    edited_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "retention policies"
        constraints = [
            models.UniqueConstraint(
                models.Value(1), condition=models.Q(project=None), name="one_policy_of_the_installation"
            )
        ]

    def __str__(self) -> str:
        return f"retention of {self.project or 'the installation'}"


class StoredCheckpoint(models.Model):
    """A whole checkpoint of a job on disk, as the background process last saw it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="stored_checkpoints")
    batch_number = models.PositiveBigIntegerField()
    num_bytes = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "batch_number"], name="stored_checkpoint_once")]

    def __str__(self) -> str:
        return f"checkpoint of batch {self.batch_number}"


class StoredUsage(models.Model):
    """Bytes of a job in the database, by kind. Files are counted from versions and checkpoints."""

    job = models.OneToOneField(
        "jobs.Job", primary_key=True, on_delete=models.CASCADE, related_name="stored_usage"
    )
    trajectories_bytes = models.BigIntegerField(default=0)
    logs_bytes = models.BigIntegerField(default=0)
    events_bytes = models.BigIntegerField(default=0)
    metrics_bytes = models.BigIntegerField(default=0)
    nodes_until = models.DateTimeField(null=True, help_text="Nodes written before this time are counted.")
    measured_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"usage of {self.job_id}"
