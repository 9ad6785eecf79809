"""What the API says of storage."""

from rest_framework import serializers

from seamlessflow.control_plane.common.http.fields import ShownIdField
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
        help_text=f"Bytes of {', '.join(USAGE_KINDS)}.",
    )
    measured_at = serializers.DateTimeField(
        source="usage.measured_at",
        allow_null=True,
        help_text="When the rows of a job were measured last; null before the first time.",
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
    rows_bytes = serializers.IntegerField(help_text="Trajectories, logs, events and metrics.")


class StoredUploadOutput(serializers.Serializer):
    id = ShownIdField(IdKind.ARTIFACT)
    name = serializers.CharField()
    project = serializers.CharField(source="project.slug")
    num_bytes = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    last_used_at = serializers.DateTimeField(
        allow_null=True, help_text="When a job was last submitted with it, or deleted; null for never."
    )
    used_by = serializers.CharField(
        help_text="A job that names it; it must stay as long as that job is kept."
    )


class PolicySettingOutput(serializers.Serializer):
    name = serializers.CharField()
    value = serializers.IntegerField(allow_null=True, help_text="What counts; null: for ever.")
    is_own = serializers.BooleanField(help_text="Set here, not inherited.")
    default = serializers.IntegerField(allow_null=True, help_text="What counts where it is not set here.")
    minimum = serializers.IntegerField()
    maximum = serializers.IntegerField()
    unit = serializers.CharField()
    may_be_none = serializers.BooleanField()
    is_of_installation = serializers.BooleanField()
    help = serializers.CharField()


class PolicyOutput(serializers.Serializer):
    project = serializers.CharField(allow_null=True, help_text="Null: the installation.")
    settings = PolicySettingOutput(many=True)


class PolicyInput(serializers.Serializer):
    settings = serializers.DictField(
        child=serializers.JSONField(allow_null=True),
        required=False,
        default=dict,
        help_text="By name; null: for ever.",
    )
    reset = serializers.ListField(
        child=serializers.CharField(), required=False, default=list, help_text="Names to inherit again."
    )


class DeletionItemInput(serializers.Serializer):
    kind = serializers.ChoiceField(KINDS)
    id = serializers.CharField(help_text="Of the job; of the upload where it is one.")
    number = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=2**62,
        help_text="Of a version; of a checkpoint's batch.",
    )


class DeletionInput(serializers.Serializer):
    items = DeletionItemInput(many=True, min_length=1, max_length=500)
    reason = serializers.CharField(required=False, default="", allow_blank=True, max_length=1000)
    dry_run = serializers.BooleanField(required=False, default=False)


class DeletionItemOutput(serializers.Serializer):
    kind = serializers.CharField(help_text=", ".join(KINDS))
    id = serializers.CharField()
    number = serializers.IntegerField(allow_null=True)
    name = serializers.CharField()
    num_bytes = serializers.IntegerField()
    reason = serializers.CharField()
    refusal = serializers.CharField(help_text="Why it must stay; empty where it can go.")


class DeletionOutput(serializers.Serializer):
    dry_run = serializers.BooleanField()
    num_bytes = serializers.IntegerField(help_text="What is freed, without what must stay.")
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
    finished_at = serializers.DateTimeField(allow_null=True, help_text="Null while files or rows are left.")

    def get_subject_id(self, removal: object) -> str:
        is_upload = getattr(removal, "kind", "") == RemovalKind.UPLOAD
        kind = IdKind.ARTIFACT if is_upload else IdKind.JOB
        return show_id(kind, removal.subject_id)  # type: ignore[attr-defined]
