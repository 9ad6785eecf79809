"""The shapes of jobs, versions, phases and events in the API."""

from typing import Any

from rest_framework import serializers

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.http.fields import ShownIdField, WordField
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.jobs.submission.datasets import REASONS
from seamlessflow.core.lifecycle.jobs import DesiredJobState, JobState, PausedBy
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.ids import IdKind
from seamlessflow.core.types.tags import Role


class JobProgressOutput(serializers.Serializer):
    num_updates_done = serializers.IntegerField(source="published_batch")
    num_updates = serializers.IntegerField(source="spec.train.num_updates")
    reward_mean = serializers.FloatField(
        allow_null=True,
        default=None,
        help_text="Mean reward of the groups in the newest published batch; null before the first.",
    )


class JobOutput(serializers.Serializer):
    id = ShownIdField(IdKind.JOB)
    name = serializers.CharField()
    project = serializers.CharField(source="project.slug")
    state = serializers.CharField(help_text=", ".join(JobState))
    state_reason = serializers.CharField()
    waiting_reason = serializers.CharField(help_text="Why the job waits; empty if it does not.")
    paused_by = WordField(
        PausedBy,
        allow_null=True,
        help_text=(
            "Who paused the job, which is pausing or paused; null for any other. A job that the platform paused needs "
            "attention: `state_reason` says what failed, and it continues only if a person resumes it."
        ),
    )
    desired = serializers.CharField(help_text=", ".join(DesiredJobState))
    generation = serializers.IntegerField(help_text="Counts what people asked of the job; its `ETag`.")
    priority = serializers.IntegerField(
        source="current_priority", help_text="Jobs of a higher priority get machines first."
    )
    latest_version = serializers.IntegerField()
    best_version = serializers.IntegerField(
        allow_null=True,
        default=None,
        help_text=(
            "Version with the highest pass@1 on the held-out tasks (if equal, the highest mean reward); null before "
            "the first evaluation."
        ),
    )
    progress = JobProgressOutput(source="*")
    num_tasks = serializers.IntegerField(allow_null=True)
    created_by = serializers.CharField(source="created_by.username", allow_null=True, default=None)
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    paused_at = serializers.DateTimeField(
        allow_null=True, help_text="Since when it is paused; null if it is not."
    )
    paused_s = serializers.SerializerMethodField(
        help_text="Seconds that it was paused between its start and its last move."
    )
    duration_s = serializers.SerializerMethodField(
        help_text="Seconds that it has run since its start, without pauses; null before."
    )

    def get_paused_s(self, job: Job) -> float:
        return job.paused_for.total_seconds()

    def get_duration_s(self, job: Job) -> float | None:
        ran = job.ran_for(database_now())
        return None if ran is None else ran.total_seconds()


class JobListItemOutput(JobOutput):
    reward_curve = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField(), min_length=2, max_length=2),
        help_text="Pairs of (update, mean reward), reduced to as many as a small chart needs.",
    )


class DatasetJobOutput(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField(help_text="Its name when this job was submitted.")


class DatasetLeftOutOutput(serializers.Serializer):
    reason = serializers.CharField(help_text=", ".join(REASONS))
    detail = serializers.CharField()
    num_sessions = serializers.IntegerField()


class DatasetOutput(serializers.Serializer):
    jobs = DatasetJobOutput(many=True)
    num_sessions = serializers.IntegerField()
    num_groups = serializers.IntegerField()
    num_sampled_tokens = serializers.IntegerField()
    num_batches_per_epoch = serializers.IntegerField()
    num_epochs = serializers.IntegerField()
    left_out = DatasetLeftOutOutput(many=True)


class MemoryPartOutput(serializers.Serializer):
    name = serializers.CharField()
    num_bytes = serializers.IntegerField(help_text="On each device.")
    is_certain = serializers.BooleanField(
        help_text="Whether it certainly lies on a GPU; otherwise it is what such work usually takes."
    )


class MemoryNeedOutput(serializers.Serializer):
    """What one device needs of those that share the model."""

    num_devices = serializers.IntegerField(help_text="Number of devices that share the model.")
    least_bytes = serializers.IntegerField(help_text="A GPU with less is not used.")
    usual_bytes = serializers.IntegerField(help_text="An estimate of what the work takes.")
    parts = MemoryPartOutput(many=True)


class MemoryOutput(serializers.Serializer):
    rollout = MemoryNeedOutput(allow_null=True, help_text="null if the job has no engines.")
    train = MemoryNeedOutput()


class JobDetailOutput(JobOutput):
    memory = MemoryOutput(
        allow_null=True,
        source="resolved.needs.shown",
        default=None,
        help_text="How much memory of a device the model needs; null if its shape is not known.",
    )
    model_notes = serializers.ListField(
        child=serializers.CharField(),
        help_text=(
            "What does not work with the model's chat template, or was not shown to work, in sentences. One that "
            "begins with 'Unverified' says that the model's tool calls may not be read."
        ),
    )
    dataset = DatasetOutput(
        allow_null=True,
        help_text=(
            "The recorded trajectories that the job trains on, selected when it was submitted; null if it trains on "
            "its own rollouts."
        ),
    )
    spec = serializers.DictField(help_text="The spec with all defaults filled in.")
    spec_submitted = serializers.DictField(help_text="The spec as it was submitted.")


class PolicyVersionOutput(serializers.Serializer):
    version = serializers.IntegerField()
    parent_version = serializers.IntegerField(allow_null=True)
    optimizer_step = serializers.IntegerField()
    batch_number = serializers.IntegerField(allow_null=True)
    num_bytes = serializers.IntegerField()
    manifest_sha256 = serializers.CharField()
    has_checkpoint = serializers.SerializerMethodField()
    is_pinned = serializers.BooleanField()
    published_at = serializers.DateTimeField()
    deleted_at = serializers.DateTimeField(allow_null=True)

    def get_has_checkpoint(self, version: Any) -> bool:
        return bool(version.checkpoint_uri)


class EngineOutput(serializers.Serializer):
    replica = serializers.IntegerField(help_text="Its number among the engines of the phase, from 0.")
    served_version = serializers.IntegerField(allow_null=True)
    problem = serializers.CharField(help_text="Why it was lost; empty while it serves.")


class PhaseOutput(serializers.Serializer):
    id = ShownIdField(IdKind.PHASE)
    machine = serializers.CharField(source="machine.name")
    machine_id = ShownIdField(IdKind.MACHINE)
    role = WordField(Role)
    fence = serializers.IntegerField()
    state = WordField(PhaseState)
    reason = serializers.CharField()
    desired_version = serializers.IntegerField()
    served_version = serializers.IntegerField(
        allow_null=True, help_text="The oldest version that one of its engines serves."
    )
    engines = serializers.SerializerMethodField()
    num_batches = serializers.IntegerField(allow_null=True)
    gang_member = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Number of the machine in a gang, from 0, which leads; null if the phase does not train on several "
            "machines. Members of a gang share a fence."
        ),
    )
    leased_at = serializers.DateTimeField()
    active_at = serializers.DateTimeField(allow_null=True)
    draining_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)

    def get_engines(self, phase: Any) -> EngineOutput(many=True):  # type: ignore[valid-type]
        known = [{"served_version": None, "problem": "", **engine} for engine in phase.engines or []]
        return EngineOutput(known, many=True).data


class EventOutput(serializers.Serializer):
    id = serializers.IntegerField()
    at = serializers.DateTimeField()
    kind = serializers.CharField()
    subject_type = serializers.CharField()
    subject_id = serializers.UUIDField()
    from_state = serializers.CharField()
    to_state = serializers.CharField()
    reason = serializers.CharField()
    author = serializers.CharField()
    data = serializers.DictField()


def job_detail(job: Job) -> dict[str, Any]:
    return dict(JobDetailOutput(job).data)
