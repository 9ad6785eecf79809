"""Machines in the admin site: tags, cordon and drain, alone or many at once, each edit with its reason.

Actions on several machines show a dry run first (`bulk_edit`). Every edit goes through the services, so it bumps the
generation and leaves an event, as over REST.
"""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.cluster.selectors import health_of
from seamlessflow.control_plane.cluster.services.machines import machine_edit
from seamlessflow.control_plane.common.admin.pages import KeptAdmin, author_of
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.scheduling.admin.bulk_edit import Work, bulk_edit_page
from seamlessflow.control_plane.scheduling.services.judgements import machine_release
from seamlessflow.core.types.desired_state import KINDS, SETTINGS, InvalidEdit, MachineEdit
from seamlessflow.core.types.limits import Reason, limits_of
from seamlessflow.core.types.machine_health import MachineHealth

NOT_QUARANTINED = "none"


class MachineForm(forms.ModelForm):  # type: ignore[type-arg]
    reason = forms.CharField(max_length=limits_of(Reason).max_length, help_text="Recorded in the event.")
    seen_generation = forms.IntegerField(widget=forms.HiddenInput)
    is_released = forms.BooleanField(
        required=False,
        label="Release from quarantine",
        help_text="The machine gets work again at once, and what failed there is forgotten.",
    )

    class Meta:
        model = Machine
        fields = list(KINDS)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["tags"].required = False
        self.fields["tags"].help_text = (
            "Comma-separated. rollout, train and agent decide what the machine may do; other tags only match the "
            "placement of jobs. To preview an edit, select the machine in the list and choose Retag."
        )
        self.fields["is_released"].disabled = quarantine_text(self.instance) == NOT_QUARANTINED
        self.initial["seen_generation"] = self.instance.generation
        self.initial["reason"] = ""

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        try:
            MachineEdit.of(cleaned).changes()
        except InvalidEdit as error:
            self.add_error(error.field, str(error))
        stored = Machine.objects.filter(id=self.instance.id).values_list("generation", flat=True).first()
        if stored != cleaned.get("seen_generation"):
            raise forms.ValidationError(
                "Someone else edited the machine in the meantime. Reload it and try again."
            )
        return cleaned


def quarantine_text(machine: Machine) -> str:
    """Return until when and why the machine gets no work."""
    judgement = getattr(machine, "judgement", None)
    if judgement is None or judgement.quarantined_at is None:
        return NOT_QUARANTINED
    return f"until {judgement.until_at:%Y-%m-%d %H:%M:%S} UTC: {judgement.reason}"


@admin.register(Machine)
class MachineAdmin(KeptAdmin):
    form = MachineForm
    list_display = ["name", "tags", "health", *SETTINGS, "generation", "reason", "edited_by"]
    list_filter = ["is_cordoned", "is_draining", "pool"]
    list_select_related = ["heartbeat", "judgement"]
    search_fields = ["name", "=id", "tags__icontains"]
    search_help_text = "Part of the name or of a tag, or an ID (mac_01h…)."
    fields = [
        "name",
        "generation",
        "edited_by",
        *KINDS,
        "quarantine",
        "is_released",
        "reason",
        "seen_generation",
    ]
    readonly_fields = ["name", "generation", "edited_by", "quarantine"]
    actions = ["retag", "cordon", "drain", "uncordon"]

    @admin.display(description="health")
    def health(self, machine: Machine) -> str:
        health = health_of(machine, database_now())
        return f"{health} {quarantine_text(machine)}" if health is MachineHealth.QUARANTINED else health

    @admin.display(description="quarantine")
    def quarantine(self, machine: Machine) -> str:
        return quarantine_text(machine)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Forbid adding: a machine is registered where its token can be handed out."""
        return False

    def save_model(self, request: HttpRequest, obj: Machine, form: MachineForm, change: bool) -> None:
        cleaned = form.cleaned_data
        machine_edit(
            machine_id=obj.id,
            edit=MachineEdit.of(cleaned),
            reason=cleaned["reason"],
            author=author_of(request),
            generation=cleaned["seen_generation"],
        )
        if cleaned["is_released"]:
            machine_release(machine_id=obj.id, reason=cleaned["reason"], author=author_of(request))

    @admin.action(description="Retag, with a preview", permissions=["change"])
    def retag(self, request: HttpRequest, machines: QuerySet[Machine]) -> HttpResponse | None:
        return bulk_edit_page(self, request, machines, action="retag", work=Work.LEAVE)

    @admin.action(description="Cordon: no new phases", permissions=["change"])
    def cordon(self, request: HttpRequest, machines: QuerySet[Machine]) -> HttpResponse | None:
        return bulk_edit_page(self, request, machines, action="cordon", work=Work.CORDON)

    @admin.action(description="Drain: hand over running phases", permissions=["change"])
    def drain(self, request: HttpRequest, machines: QuerySet[Machine]) -> HttpResponse | None:
        return bulk_edit_page(self, request, machines, action="drain", work=Work.DRAIN)

    @admin.action(description="Resume work: undo drain and cordon", permissions=["change"])
    def uncordon(self, request: HttpRequest, machines: QuerySet[Machine]) -> HttpResponse | None:
        return bulk_edit_page(self, request, machines, action="uncordon", work=Work.TAKE)
