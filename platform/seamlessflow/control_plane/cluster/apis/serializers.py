"""The shapes of machines and logs in the API."""

from typing import Any, get_args, get_origin

from rest_framework import serializers

from seamlessflow.control_plane.cluster.selectors import health_of, phases_ranked
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.http.fields import (
    LIMITED,
    LimitedText,
    ReasonField,
    ShownIdField,
    WordField,
)
from seamlessflow.control_plane.telemetry.apis.serializers import SessionLogOutput
from seamlessflow.core.lifecycle.phases import PhaseState
from seamlessflow.core.types.desired_state import KINDS
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.core.types.labels import labels_of
from seamlessflow.core.types.limits import MachineName, Tag, limits_of
from seamlessflow.core.types.machine_health import MachineHealth
from seamlessflow.core.types.tags import Role


class MachineHeartbeatOutput(serializers.Serializer):
    received_at = serializers.DateTimeField()
    state = serializers.CharField(source="open_state", help_text="The machine's present state in its ledger.")
    cause = serializers.CharField(source="open_cause")
    state_since_at = serializers.DateTimeField(source="open_since_at", allow_null=True)
    capabilities = serializers.DictField()


class MachinePhaseOutput(serializers.Serializer):
    id = ShownIdField(IdKind.PHASE)
    job_id = serializers.SerializerMethodField(help_text="Null if the job belongs to another project.")
    job_name = serializers.SerializerMethodField(help_text="Null if the job belongs to another project.")
    role = WordField(Role)
    state = WordField(PhaseState)
    served_version = serializers.IntegerField(allow_null=True)

    def get_job_id(self, phase: Any) -> str | None:
        return show_id(IdKind.JOB, phase.job_id) if phase.is_own else None

    def get_job_name(self, phase: Any) -> str | None:
        return phase.job.name if phase.is_own else None


class MachineQuarantineOutput(serializers.Serializer):
    since_at = serializers.DateTimeField(source="quarantined_at")
    until_at = serializers.DateTimeField(
        help_text="From then on, one phase tries out whether the machine works again."
    )
    reason = serializers.CharField()
    num_quarantines = serializers.IntegerField(
        help_text="Number of quarantines in a row, with this one. Each is twice as long as the one before."
    )
    is_on_trial = serializers.BooleanField(help_text="Whether a phase is trying the machine out.")


def _desired_fields(**options: Any) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    """Return a field for each one of a machine's desired state."""
    return {name: _field_of(kind, **options) for name, kind in KINDS.items()}


def _field_of(kind: Any, **options: Any) -> serializers.Field[Any, Any, Any, Any]:
    if get_origin(kind) is frozenset:
        return TagsField(child=LimitedText(Tag), **options)
    python_type = get_args(kind)[0]
    named = options | {"help_text": limits_of(kind).help}
    return serializers.BooleanField(**named) if python_type is bool else LIMITED[python_type](kind, **named)


class TagsField(serializers.ListField):
    def to_representation(self, data: Any) -> list[str]:
        return sorted(super().to_representation(data))


class DesiredOutput(serializers.Serializer):
    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), **_desired_fields()}


class MachineOutput(DesiredOutput):
    id = ShownIdField(IdKind.MACHINE)
    name = serializers.CharField()
    labels = serializers.SerializerMethodField(
        help_text="Its hardware, as the machine reports it: `gpu=h100`, `gpus=8`, `host=node-7`. Placement matches "
        "labels like tags; they cannot be edited."
    )
    generation = serializers.IntegerField(help_text="Counts the edits of the machine; its `ETag`.")
    is_up = serializers.SerializerMethodField(help_text="Whether its supervisor sends heartbeats.")
    health = serializers.SerializerMethodField(help_text="How the machine is, in one word.")
    reason = serializers.CharField()
    edited_by = serializers.CharField()
    quarantine = serializers.SerializerMethodField(
        help_text="Why the platform gives the machine no work for now; null if it does."
    )
    heartbeat = serializers.SerializerMethodField()
    phase = serializers.SerializerMethodField(help_text="The first of `phases`.")
    phases = serializers.SerializerMethodField(
        help_text="Its live phases: the one that rolls out or trains, then those of agents."
    )

    def get_labels(self, machine: Any) -> list[str]:
        heartbeat = getattr(machine, "heartbeat", None)
        return [] if heartbeat is None else sorted(labels_of(heartbeat.capabilities))

    def get_is_up(self, machine: Any) -> bool:
        heartbeat = getattr(machine, "heartbeat", None)
        return heartbeat is not None and heartbeat.is_heard(database_now())

    def get_health(self, machine: Any) -> MachineHealth:
        return health_of(machine, database_now())

    def get_quarantine(self, machine: Any) -> MachineQuarantineOutput(allow_null=True):  # type: ignore[valid-type]
        judgement = getattr(machine, "judgement", None)
        if judgement is None or judgement.quarantined_at is None:
            return None
        is_over = judgement.until_at <= database_now()
        judgement.is_on_trial = is_over and any(
            phase.fence > judgement.judged_fence for phase in machine.live_phases
        )
        return MachineQuarantineOutput(judgement).data

    def get_heartbeat(self, machine: Any) -> MachineHeartbeatOutput(allow_null=True):  # type: ignore[valid-type]
        heartbeat = getattr(machine, "heartbeat", None)
        return None if heartbeat is None else MachineHeartbeatOutput(heartbeat).data

    def get_phase(self, machine: Any) -> MachinePhaseOutput(allow_null=True):  # type: ignore[valid-type]
        ranked = phases_ranked(machine.live_phases)
        return MachinePhaseOutput(ranked[0]).data if ranked else None

    def get_phases(self, machine: Any) -> MachinePhaseOutput(many=True):  # type: ignore[valid-type]
        return MachinePhaseOutput(phases_ranked(machine.live_phases), many=True).data


class DesiredInput(serializers.Serializer):
    """The fields that an edit sets; one that is left out stays as it is."""

    def get_fields(self) -> dict[str, Any]:
        return {**_desired_fields(required=False), **super().get_fields()}


class MachineEditInput(DesiredInput):
    reason = ReasonField()


class MachineRegisterInput(serializers.Serializer):
    name = LimitedText(MachineName)
    tags = serializers.ListField(child=LimitedText(Tag), default=list)


class MachineRegisteredOutput(MachineOutput):
    token = serializers.CharField(help_text="Token for the supervisor. It is shown only in this answer.")


class LogPartOutput(SessionLogOutput):
    streams = serializers.ListField(child=serializers.CharField())
    stream = serializers.CharField()
    num_missing_bytes = serializers.IntegerField(
        help_text=(
            "Number of bytes between the requested offset and `text` that are no longer kept. A log keeps its first "
            "MiB and its last 15 MiB."
        )
    )
