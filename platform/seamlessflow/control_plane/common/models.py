"""Events (the outbox) and removals of stored things.

Invariant: every move of a status leaves exactly one event, in the same transaction.
"""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models

from seamlessflow.control_plane.common.database.clock import StoredAtField
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.core.retention.planner import RemovalKind


class SubjectType(models.TextChoices):
    JOB = "job"
    MACHINE = "machine"
    PHASE = "phase"
    VERSION = "version"
    GROUP = "group"
    SESSION = "session"
    TOKEN = "token"
    ARTIFACT = "artifact"
    PROJECT = "project"  # the identifier zero stands for the installation
    ACCOUNT = "account"


class Event(models.Model):
    """One thing that happened, in order of `id`: audit trail, webhook outbox and source of live events."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey("accounts.Project", null=True, on_delete=models.CASCADE, related_name="+")
    subject_type = models.CharField(max_length=16, choices=SubjectType.choices)
    subject_id = models.UUIDField()
    job_id = models.UUIDField(null=True, help_text="The job that the event concerns, if any.")
    kind = models.CharField(max_length=64, help_text="e.g. job.state, machine.tags, version.published")
    from_state = models.CharField(max_length=16, blank=True, default="")
    to_state = models.CharField(max_length=16, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    author = models.CharField(
        max_length=150, help_text="user:<name>, machine:<name>, scheduler, gateway, system"
    )
    data = models.JSONField(default=dict)
    at = StoredAtField()

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["subject_id", "id"], name="event_subject"),
            models.Index(fields=["job_id", "id"], name="event_job"),
            models.Index(fields=["kind", "id"], name="event_kind"),
            # Few among millions; the machines' page shows those of the last hour.
            models.Index(
                fields=["at"], name="event_machine_edited", condition=models.Q(kind="machine.edited")
            ),
            # Retention reads by age, and rows lie in the table in order of their age.
            BrinIndex(fields=["at"], name="event_age"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.from_state} → {self.to_state}" if self.to_state else self.kind


class Removal(models.Model):
    """Something that is being deleted: one transaction marks it with this row; files and rows are removed afterwards.

    The remover may die at any point. A removal without `finished_at` is continued; each of its steps can be repeated.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16, choices=[(kind.value, kind.value) for kind in RemovalKind])
    subject_id = models.UUIDField(help_text="Identifier of the job or the upload.")
    number = models.PositiveBigIntegerField(
        null=True, help_text="Number of the version, or of the checkpoint's batch."
    )
    name = models.CharField(max_length=255, help_text="Name of the job or the upload when it was deleted.")
    num_bytes = models.BigIntegerField(help_text="Number of bytes that it frees, as last measured.")
    paths = models.JSONField(default=list, help_text="Files and folders, relative to ARTIFACT_ROOT.")
    reason = models.TextField(blank=True, default="")
    author = models.CharField(max_length=150)
    requested_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-requested_at", "-id"]
        indexes = [
            models.Index(fields=["project", "-requested_at"], name="removal_project"),
            models.Index(
                fields=["requested_at"], name="removal_unfinished", condition=models.Q(finished_at=None)
            ),
        ]

    def __str__(self) -> str:
        return f"removal of {self.kind} {self.name}"
