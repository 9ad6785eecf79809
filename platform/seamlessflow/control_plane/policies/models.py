"""Policy versions: publications of a job, never reused. Version 0 is the initial model."""

from django.db import models

from seamlessflow.control_plane.common.database.clock import StoredAtField
from seamlessflow.control_plane.common.ids import new_id


class PolicyVersion(models.Model):
    """One set of weights of one job. A batch is in at most one publication."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="versions")
    version = models.PositiveBigIntegerField()
    parent_version = models.PositiveBigIntegerField(null=True)
    optimizer_step = models.PositiveBigIntegerField(default=0)
    batch_number = models.PositiveBigIntegerField(
        null=True, help_text="The batch that this version was trained on; null for version 0."
    )
    uri = models.CharField(max_length=1024)
    manifest_sha256 = models.CharField(max_length=64, blank=True, default="")
    num_bytes = models.BigIntegerField(default=0)
    checkpoint_uri = models.CharField(max_length=1024, blank=True, default="")
    train_fence = models.PositiveBigIntegerField(default=0)
    phase = models.ForeignKey("scheduling.Phase", null=True, on_delete=models.SET_NULL, related_name="+")
    is_pinned = models.BooleanField(default=False, help_text="Whether retention keeps its files.")
    deleted_at = models.DateTimeField(null=True, help_text="When retention deleted its files.")
    published_at = StoredAtField()

    class Meta:
        ordering = ["job", "version"]
        constraints = [
            models.UniqueConstraint(fields=["job", "version"], name="policy_version_unique"),
            models.UniqueConstraint(fields=["job", "batch_number"], name="policy_version_batch_once"),
        ]
        # Only a few rows of a job; retention deleted the other files.
        indexes = [
            models.Index(
                fields=["job", "version"], name="policy_version_kept", condition=models.Q(deleted_at=None)
            )
        ]

    def __str__(self) -> str:
        return f"version {self.version}"
