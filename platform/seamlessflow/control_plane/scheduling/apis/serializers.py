"""The shapes of dry runs in the API."""

from rest_framework import serializers

from seamlessflow.control_plane.cluster.apis.serializers import DesiredInput, DesiredOutput
from seamlessflow.control_plane.common.http.fields import ReasonField, ShownIdField, WordField
from seamlessflow.control_plane.scheduling.selectors.previews import ShownJobImpact, ShownPhaseImpact
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.scheduling.explain.preview import Impact
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.tags import Role


class MachinePreviewInput(DesiredInput):
    pass


class OneMachinePreviewInput(MachinePreviewInput):
    machine_id = ShownIdField(IdKind.MACHINE)


class MachinesPreviewInput(serializers.Serializer):
    edits = serializers.ListField(child=OneMachinePreviewInput(), allow_empty=False, max_length=500)


class EditedMachineOutput(serializers.Serializer):
    id = ShownIdField(IdKind.MACHINE)
    name = serializers.CharField()
    generation = serializers.IntegerField(
        help_text="Generation that the dry run is based on; send it as `If-Match` with the edit."
    )
    before = DesiredOutput()
    after = DesiredOutput()


class PhaseImpactOutput(serializers.Serializer):
    """The impact on one phase. It is true until the next edit; `phase_id`, `state` and `load` are current
    values.
    """

    phase_id = ShownIdField(
        IdKind.PHASE,
        source="impact.live.id",
        allow_null=True,
        help_text=(
            "Null if the machine has no live phase of this role now: machines that train in turns have one phase at "
            "a time."
        ),
    )
    machine = serializers.CharField(source="impact.machine")
    role = WordField(Role, source="impact.role")
    state = WordField(PhaseState, source="impact.live.state", allow_null=True)
    is_turn = serializers.BooleanField(
        source="impact.is_turn",
        help_text="Whether this is about the machine's turns to train, whatever it does now.",
    )
    job_id = serializers.SerializerMethodField(help_text="Null if the job belongs to another project.")
    job_name = serializers.CharField(allow_null=True, help_text="Null if the job belongs to another project.")
    impact = WordField(Impact, source="impact.impact")
    reason = serializers.CharField(source="impact.reason", help_text="Why the phase ends; empty if it stays.")
    is_by_edit = serializers.BooleanField(
        source="impact.is_by_edit",
        help_text="Whether the edit ends it; false if it would end anyway or stays.",
    )
    successors = serializers.ListField(
        child=serializers.CharField(),
        source="impact.successors",
        help_text="Machines that take over the role.",
    )
    load = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Current number of requests (rollout) or episodes (agent), or number of the current batch (train)."
        ),
    )
    sentence = serializers.CharField()

    def get_job_id(self, shown: ShownPhaseImpact) -> str | None:
        return show_id(IdKind.JOB, shown.impact.job_id) if shown.job_name is not None else None


class PlacesOutput(serializers.Serializer):
    state = serializers.CharField(allow_null=True, help_text="Null if the job has ended.")
    rollout = serializers.ListField(child=serializers.CharField())
    train = serializers.ListField(
        child=serializers.CharField(), help_text="Machines that train once a batch is due."
    )
    agent = serializers.ListField(child=serializers.CharField())
    waiting = serializers.CharField(help_text="Why the job waits; empty if it does not.")


class JobImpactOutput(serializers.Serializer):
    job_id = serializers.SerializerMethodField(help_text="Null if the job belongs to another project.")
    job_name = serializers.CharField(allow_null=True, help_text="Null if the job belongs to another project.")
    is_changed = serializers.BooleanField(source="impact.is_changed")
    before = PlacesOutput(source="impact.before", help_text="Where the job runs without the edit.")
    after = PlacesOutput(source="impact.after", help_text="Where the job runs with the edit.")
    sentence = serializers.CharField()

    def get_job_id(self, shown: ShownJobImpact) -> str | None:
        return show_id(IdKind.JOB, shown.impact.job_id) if shown.job_name is not None else None


class MachinesPreviewOutput(serializers.Serializer):
    machines = EditedMachineOutput(many=True)
    phases = PhaseImpactOutput(many=True)
    jobs = JobImpactOutput(many=True)
    sentences = serializers.ListField(
        child=serializers.CharField(), help_text="The whole forecast in sentences."
    )


class MachineReleaseInput(serializers.Serializer):
    reason = ReasonField()
    device = serializers.CharField(
        required=False, max_length=200, help_text="Release this cordoned device, not the machine."
    )
