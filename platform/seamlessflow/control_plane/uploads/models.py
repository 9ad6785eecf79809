"""What people uploaded."""

from django.db import models

from seamlessflow.control_plane.common.database.clock import StoredAtField
from seamlessflow.control_plane.common.ids import new_id


class Artifact(models.Model):
    """A file or folder that a user uploaded. Specs name it `artifact://<id>`. It is complete or absent."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="artifacts")
    name = models.CharField(max_length=255)
    uri = models.CharField(max_length=1024, help_text="Location of the file or folder under ARTIFACT_ROOT.")
    is_archive = models.BooleanField(
        default=False, help_text="Whether it is a tar that was unpacked into a folder."
    )
    num_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    created_by = models.ForeignKey("accounts.User", null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = StoredAtField()
    last_used_at = models.DateTimeField(null=True, help_text="When the last job that used it was deleted.")
    deleted_at = models.DateTimeField(
        null=True, help_text="When it was deleted; from then on no job may name it."
    )

    def __str__(self) -> str:
        return self.name
