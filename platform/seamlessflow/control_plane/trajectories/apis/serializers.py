"""The representations of groups, sessions, nodes, evaluations and audits in the API."""

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from seamlessflow.control_plane.common.http.fields import ShownIdField
from seamlessflow.control_plane.trajectories.models import Session
from seamlessflow.control_plane.trajectories.selectors.joins import JoinsRow
from seamlessflow.core.lifecycle.groups import EvaluationState
from seamlessflow.core.trajectory.prefix_tree import ForkCause
from seamlessflow.core.types.ids import IdKind


class GroupOutput(serializers.Serializer):
    id = ShownIdField(IdKind.GROUP)
    index = serializers.IntegerField()
    task_index = serializers.IntegerField(allow_null=True)
    evaluation_version = serializers.IntegerField(
        allow_null=True, help_text="The version that the group evaluates; null for a group that trains."
    )
    size = serializers.IntegerField()
    state = serializers.CharField()
    reason = serializers.CharField()
    num_rewarded = serializers.IntegerField()
    reward_mean = serializers.FloatField(allow_null=True)
    reward_std = serializers.FloatField(allow_null=True)
    min_version = serializers.IntegerField(allow_null=True)
    max_version = serializers.IntegerField(allow_null=True)
    batch_number = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField()
    ready_at = serializers.DateTimeField(allow_null=True)


class JoinsOutput(serializers.Serializer):
    """How turns joined their sessions' trees; see `core.trajectory.joins`."""

    num_clean = serializers.IntegerField(help_text="Turns that only appended to their tree.")
    num_turns = serializers.IntegerField(
        help_text="Turns that could join a conversation: all but the first of each."
    )
    causes = serializers.DictField(
        child=serializers.IntegerField(),
        help_text=f"Numbers of the other turns by cause: {', '.join(cause.name.lower() for cause in ForkCause)}.",
    )
    num_conversations = serializers.IntegerField(
        allow_null=True,
        help_text="Conversations that the agents began, such as a request for a title beside the task. Null if the "
        "job ended before they were counted.",
    )


class SessionOutput(serializers.Serializer):
    """Its context has `joins` and `last_lines`: those of each session by identifier."""

    id = ShownIdField(IdKind.SESSION)
    group_id = ShownIdField(IdKind.GROUP)
    job_id = ShownIdField(IdKind.JOB)
    slot = serializers.IntegerField()
    attempt = serializers.IntegerField()
    state = serializers.CharField()
    reason = serializers.CharField()
    last_line = serializers.SerializerMethodField(
        help_text="The last line that a failed session printed; null for all others, and if it printed nothing."
    )
    reward = serializers.FloatField(allow_null=True)
    is_timeout = serializers.BooleanField()
    is_late = serializers.BooleanField()
    metrics = serializers.DictField()
    num_turns = serializers.IntegerField()
    num_sampled_tokens = serializers.IntegerField()
    joins = serializers.SerializerMethodField(help_text="Null if the trajectories were deleted.")
    opened_at = serializers.DateTimeField()
    closed_at = serializers.DateTimeField(allow_null=True)

    def get_last_line(self, session: Session) -> str | None:
        found: str | None = self.context["last_lines"].get(session.id)
        return found

    @extend_schema_field(JoinsOutput(allow_null=True))
    def get_joins(self, session: Session) -> JoinsRow | None:
        found: JoinsRow | None = self.context["joins"].get(session.id)
        return found


class VersionSpanOutput(serializers.Serializer):
    start = serializers.IntegerField()
    end = serializers.IntegerField()
    version = serializers.IntegerField(help_text="-1 if unknown; such tokens are never trained.")


class NodeOutput(serializers.Serializer):
    node_index = serializers.IntegerField()
    parent_index = serializers.IntegerField(allow_null=True)
    kind = serializers.CharField(help_text="`root`, `prompt` or `sampled`.")
    num_tokens = serializers.IntegerField()
    versions = VersionSpanOutput(many=True)
    messages = serializers.JSONField(allow_null=True)
    finish_reason = serializers.CharField(allow_null=True)
    drift = serializers.CharField(allow_null=True)
    cause = serializers.CharField(allow_null=True)
    turn_id = serializers.UUIDField()
    is_partial = serializers.BooleanField()
    flags = serializers.DictField()
    num_handovers = serializers.IntegerField()
    num_continuations = serializers.IntegerField()
    max_gap_s = serializers.FloatField(allow_null=True)
    duration_s = serializers.FloatField(allow_null=True)
    num_wasted_tokens = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    token_ids = serializers.ListField(child=serializers.IntegerField(), required=False)
    logprobs = serializers.ListField(child=serializers.FloatField(), required=False)


class GroupDetailOutput(GroupOutput):
    job_id = ShownIdField(IdKind.JOB)
    job_name = serializers.CharField()
    task = serializers.DictField()
    sessions = SessionOutput(many=True)


class SessionDetailOutput(SessionOutput):
    nodes = NodeOutput(many=True, help_text="In order of their index, at most 5000.")
    truncated = serializers.BooleanField(help_text="Whether more nodes follow.")
    next_node = serializers.IntegerField(
        allow_null=True, help_text="The `from_node` of the next page; null on the last page."
    )


class EvaluationOutput(serializers.Serializer):
    """All figures are null until the evaluation is finished."""

    version = serializers.IntegerField()
    state = serializers.CharField(help_text=", ".join(EvaluationState))
    num_tasks = serializers.IntegerField()
    num_tasks_done = serializers.IntegerField()
    samples_per_task = serializers.IntegerField()
    num_rewarded = serializers.IntegerField(allow_null=True)
    num_sampled_tokens = serializers.IntegerField(allow_null=True)
    min_version = serializers.IntegerField(
        allow_null=True, help_text="Oldest version that sampled one of its tokens; at least `version`."
    )
    max_version = serializers.IntegerField(
        allow_null=True, help_text="Newest version that sampled one of its tokens."
    )
    reward_mean = serializers.FloatField(allow_null=True)
    pass_at_1 = serializers.FloatField(allow_null=True)
    pass_at_k = serializers.DictField(child=serializers.FloatField(), help_text="pass@k estimates by k.")
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class AuditCheckOutput(serializers.Serializer):
    name = serializers.CharField()
    ok = serializers.BooleanField()
    detail = serializers.CharField()
    figures = serializers.DictField()


class AuditOutput(serializers.Serializer):
    ok = serializers.BooleanField()
    checks = AuditCheckOutput(many=True)
