"""The shapes of storage, retention policies and deletions in the API."""

from rest_framework import serializers

from seamlessflow.control_plane.common.http.fields import ReasonField, ShownIdField
from seamlessflow.control_plane.storage.selectors import USAGE_KINDS
from seamlessflow.core.retention.planner import RemovalKind
from seamlessflow.core.types.ids import IdKind, show_id

KINDS = [kind.value for kind in RemovalKind]


class StorageOutput(serializers.Serializer):
    project = serializers.CharField(source="slug")
    num_bytes = serializers.IntegerField(source="usage.num_bytes")
    by_kind = serializers.DictField(
        source="usage.by_kind",
        child=serializers.IntegerField(),
        help_text=f"Number of bytes of each kind: {', '.join(USAGE_KINDS)}.",
    )
    measured_at = serializers.DateTimeField(
        source="usage.measured_at",
        allow_null=True,
        help_text="Time of the last measurement of a job's rows; null before the first.",
    )


class StoredJobOutput(serializers.Serializer):
    id = ShownIdField(IdKind.JOB)
    name = serializers.CharField()
    project = serializers.CharField(source="project.slug")
    state = serializers.CharField()
    ended_at = serializers.DateTimeField(allow_null=True)
    num_bytes = serializers.IntegerField(source="total_bytes")
    versions_bytes = serializers.IntegerField()
    checkpoints_bytes = serializers.IntegerField()
    rows_bytes = serializers.IntegerField(
        help_text="Number of bytes of trajectories, logs, events and metrics."
    )


class StoredUploadOutput(serializers.Serializer):
    id = ShownIdField(IdKind.ARTIFACT)
    name = serializers.CharField()
    project = serializers.CharField(source="project.slug")
    num_bytes = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time at which the last job that used it was deleted; null if there was none.",
    )
    used_by = serializers.CharField(
        help_text="Name of a job that uses it, so that it must stay as long as this job; empty if there is none."
    )


class PolicySettingOutput(serializers.Serializer):
    name = serializers.CharField()
    value = serializers.IntegerField(allow_null=True, help_text="The value in force; null: forever.")
    is_own = serializers.BooleanField(help_text="Whether the value is set here, not inherited.")
    default = serializers.IntegerField(
        allow_null=True, help_text="The inherited value, used if none is set here."
    )
    minimum = serializers.IntegerField()
    maximum = serializers.IntegerField()
    unit = serializers.CharField()
    may_be_none = serializers.BooleanField()
    is_of_installation = serializers.BooleanField()
    help = serializers.CharField()


class PolicyOutput(serializers.Serializer):
    project = serializers.CharField(
        allow_null=True, help_text="Slug of the project; null for the installation."
    )
    settings = PolicySettingOutput(many=True)


class PolicyInput(serializers.Serializer):
    settings = serializers.DictField(
        child=serializers.JSONField(allow_null=True),
        required=False,
        default=dict,
        help_text="New values by name; null: forever.",
    )
    reset = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        default=list,
        help_text="Names of settings that take their inherited value again.",
    )


class DeletionItemInput(serializers.Serializer):
    kind = serializers.ChoiceField(KINDS)
    id = serializers.CharField(help_text="Identifier of the job, or of the upload.")
    number = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=2**62,
        help_text="Number of the version, or of the checkpoint's batch.",
    )


class DeletionInput(serializers.Serializer):
    items = DeletionItemInput(many=True, min_length=1, max_length=500)
    reason = ReasonField(is_required=False)
    dry_run = serializers.BooleanField(required=False, default=False)


class DeletionItemOutput(serializers.Serializer):
    kind = serializers.CharField(help_text=", ".join(KINDS))
    id = serializers.CharField()
    number = serializers.IntegerField(allow_null=True)
    name = serializers.CharField()
    num_bytes = serializers.IntegerField()
    reason = serializers.CharField()
    refusal = serializers.CharField(help_text="Why the item cannot be deleted; empty if it can.")


class DeletionOutput(serializers.Serializer):
    dry_run = serializers.BooleanField()
    num_bytes = serializers.IntegerField(
        help_text="Number of bytes that are freed, without items that cannot be deleted."
    )
    items = DeletionItemOutput(many=True)


class RemovalOutput(serializers.Serializer):
    kind = serializers.CharField()
    subject_id = serializers.SerializerMethodField()
    number = serializers.IntegerField(allow_null=True)
    name = serializers.CharField()
    num_bytes = serializers.IntegerField()
    reason = serializers.CharField()
    author = serializers.CharField()
    requested_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(
        allow_null=True, help_text="Null while some files or rows are still to be removed."
    )

    def get_subject_id(self, removal: object) -> str:
        is_upload = getattr(removal, "kind", "") == RemovalKind.UPLOAD
        kind = IdKind.ARTIFACT if is_upload else IdKind.JOB
        return show_id(kind, removal.subject_id)  # type: ignore[attr-defined]
