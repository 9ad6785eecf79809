"""The shapes of the queue in the API."""

from typing import Any

from rest_framework import serializers

from seamlessflow.control_plane.common.http.fields import ShownIdField, WordField
from seamlessflow.core.scheduling.explain.queue import Lack, Until
from seamlessflow.core.scheduling.explain.unblocks import UnblockKind
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role


class QueueHolderOutput(serializers.Serializer):
    machine = serializers.CharField(source="holder.machine.name")
    machine_id = ShownIdField(IdKind.MACHINE, source="holder.machine.id")
    job_id = serializers.SerializerMethodField(
        help_text="Null if nobody has the machine, or a job of another project."
    )
    job_name = serializers.SerializerMethodField()
    until = WordField(Until, source="holder.until")
    within_s = serializers.FloatField(
        source="holder.within_s",
        allow_null=True,
        help_text="When it is expected to be available, in seconds from now; null if that is not known.",
    )
    sentence = serializers.CharField()

    def get_job_id(self, shown: Any) -> str | None:
        return None if shown.job is None else show_id(IdKind.JOB, shown.job.id)

    def get_job_name(self, shown: Any) -> str | None:
        return None if shown.job is None else str(shown.job.name)


class QueueShortageOutput(serializers.Serializer):
    role = WordField(Role, source="shortage.role")
    num_machines = serializers.IntegerField(
        source="shortage.num_machines", help_text="Number of machines that the job lacks in this role."
    )
    tags = serializers.ListField(child=serializers.CharField(), source="shortage.tags")
    num_fitting = serializers.IntegerField(
        source="shortage.num_fitting",
        help_text="Number of usable machines with these tags, whoever has them.",
    )
    sentence = serializers.CharField()
    holders = QueueHolderOutput(
        many=True, help_text="Who has them, the soonest available first; at most five."
    )


class QueueUnblockOutput(serializers.Serializer):
    kind = WordField(UnblockKind, source="offer.kind")
    sentence = serializers.CharField()
    may_do = serializers.BooleanField(help_text="Whether you may do it yourself.")
    num_stopped_jobs = serializers.SerializerMethodField(help_text="Number of jobs that stop because of it.")
    within_s = serializers.FloatField(
        source="offer.within_s", allow_null=True, help_text="wait: the earliest time, in seconds from now."
    )
    at_most_s = serializers.FloatField(
        source="offer.at_most_s", allow_null=True, help_text="wait: the latest time; null if it is not known."
    )
    machine_id = serializers.SerializerMethodField(help_text="retag: the machine that gets the tags.")
    tags = serializers.ListField(
        child=serializers.CharField(), source="offer.tags", help_text="retag: the tags to add."
    )
    value = serializers.IntegerField(
        source="offer.value", allow_null=True, help_text="priority, quota: the new value."
    )
    pool = serializers.CharField(source="offer.pool", help_text="grant: the pool; otherwise empty.")

    def get_num_stopped_jobs(self, shown: Any) -> int:
        return len(shown.offer.gives_way)

    def get_machine_id(self, shown: Any) -> str | None:
        return None if shown.offer.machine is None else show_id(IdKind.MACHINE, shown.offer.machine.id)


class QueueEntryOutput(serializers.Serializer):
    """A job that gets less than it could use."""

    job_id = ShownIdField(IdKind.JOB, source="job.id")
    job_name = serializers.CharField(source="job.name")
    project = serializers.CharField(source="job.project.slug")
    state = serializers.CharField(source="job.state")
    created_by = serializers.CharField(source="job.created_by.username", allow_null=True, default=None)
    generation = serializers.IntegerField(source="job.generation")
    priority = serializers.IntegerField(source="entry.job.priority")
    may_edit = serializers.BooleanField(help_text="Whether you may change its priority.")
    place = serializers.IntegerField(
        source="entry.place",
        allow_null=True,
        help_text="Its place among all jobs that wait to begin, from 1; null if it is at work and could use more.",
    )
    waiting_s = serializers.FloatField(
        source="entry.job.waiting_s", help_text="Seconds since it entered the queue; 0 if it is at work."
    )
    lack = WordField(Lack, source="entry.lack")
    sentence = serializers.CharField(help_text="Why it waits, in one sentence.")
    shortages = QueueShortageOutput(many=True)
    unblocks = QueueUnblockOutput(
        many=True,
        help_text="What would help, the cheapest first. The scheduler's own rules have tried each of the edits.",
    )
