"""The page between an admin action and its effect: one edit for several machines, its dry run, then the edit.

Takes the action's POST. Returns the form, or the form with the dry run below it, or applies all edits or none. The
edits name the generations that the dry run read; if a machine was edited meanwhile, the dry run is shown again.
"""

from enum import StrEnum
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from seamlessflow.control_plane.accounts.models import User
from seamlessflow.control_plane.accounts.selectors.access import access_of
from seamlessflow.control_plane.cluster.models import Machine
from seamlessflow.control_plane.cluster.services.machines import machines_edit
from seamlessflow.control_plane.common.admin.pages import author_of
from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.scheduling.selectors.previews import MachinesPreview, machines_preview
from seamlessflow.core.types.desired_state import MachineEdit
from seamlessflow.core.types.limits import Reason, limits_of
from seamlessflow.core.types.tags import InvalidTag, parse_tags

TEMPLATE = "scheduling/bulk_edit.html"
SEEN = "seen_"  # prefix of the hidden fields with the generations of the dry run


class Work(StrEnum):
    """Which work the machines may do from now on."""

    LEAVE = "leave"
    TAKE = "take"
    CORDON = "cordon"
    DRAIN = "drain"


_WORK_SAID = {
    Work.LEAVE: "leave unchanged",
    Work.TAKE: "take work: neither cordoned nor draining",
    Work.CORDON: "cordon: take no new work; running work continues",
    Work.DRAIN: "drain: hand over running work; take no new work",
}


def _wide() -> forms.TextInput:
    return forms.TextInput(attrs={"class": "vTextField"})  # the admin site's own width


class TagsField(forms.CharField):
    """Takes comma-separated tags and cleans them to a set."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, widget=_wide(), **options)

    def to_python(self, value: str | None) -> Any:
        try:
            return parse_tags(tag for tag in (value or "").replace(",", " ").split())
        except InvalidTag as error:
            raise forms.ValidationError(str(error)) from error


class BulkEditForm(forms.Form):
    add = TagsField(label="Add tags", help_text="Comma-separated; rollout, train and agent are roles.")
    remove = TagsField(label="Remove tags")
    work = forms.ChoiceField(choices=[(work.value, label) for work, label in _WORK_SAID.items()])
    reason = forms.CharField(
        max_length=limits_of(Reason).max_length, widget=_wide(), help_text="Recorded in each machine's event."
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if both := cleaned.get("add", frozenset()) & cleaned.get("remove", frozenset()):
            raise forms.ValidationError(f"{', '.join(sorted(both))}: both added and removed")
        return cleaned

    @property
    def fingerprint(self) -> str:
        """Return the requested edit as one line, which must equal that of the dry run."""
        add, remove = sorted(self.cleaned_data["add"]), sorted(self.cleaned_data["remove"])
        return f"+{','.join(add)} -{','.join(remove)} {self.cleaned_data['work']}"

    def edit_of(self, machine: Machine) -> MachineEdit:
        add, remove = self.cleaned_data["add"], self.cleaned_data["remove"]
        tags = (frozenset(machine.tags) | add) - remove if add or remove else None
        match Work(self.cleaned_data["work"]):
            case Work.LEAVE:
                return MachineEdit(tags=tags)
            case Work.TAKE:
                return MachineEdit(tags=tags, is_cordoned=False, is_draining=False)
            case Work.CORDON:
                return MachineEdit(tags=tags, is_cordoned=True)
            case Work.DRAIN:
                return MachineEdit(tags=tags, is_draining=True)


def bulk_edit_page(
    model_admin: "admin.ModelAdmin[Machine]",
    request: HttpRequest,
    machines: QuerySet[Machine],
    *,
    action: str,
    work: Work,
) -> HttpResponse | None:
    """Return the page, or None once the edits are done: the admin site then goes back to its list."""
    chosen = list(machines.order_by("name"))
    is_sent = "step" in request.POST
    form = BulkEditForm(request.POST) if is_sent else BulkEditForm(initial={"work": work.value})
    preview = None
    if is_sent and form.is_valid():
        edits = {machine.id: form.edit_of(machine) for machine in chosen}
        if request.POST["step"] == "apply" and _apply(model_admin, request, form, edits):
            return None
        # Read the machines again, so that the page shows the generations of the state that it describes.
        preview = _preview(request, {machine.id: form.edit_of(machine) for machine in machines.all()})
    context = admin.site.each_context(request) | {
        "title": "Edit machines",
        "opts": Machine._meta,  # for the admin's own templates
        "machines": chosen,
        "form": form,
        "action": action,
        "checkbox": ACTION_CHECKBOX_NAME,
        "preview": preview,
        "seen": SEEN,
    }
    return render(request, TEMPLATE, context)


def _preview(request: HttpRequest, edits: dict[UUID, MachineEdit]) -> MachinesPreview:
    assert isinstance(request.user, User)
    return machines_preview(access=access_of(user=request.user, token=None), edits=edits)


def _apply(
    model_admin: "admin.ModelAdmin[Machine]",
    request: HttpRequest,
    form: BulkEditForm,
    edits: dict[UUID, MachineEdit],
) -> bool:
    """Apply the edits. Returns False if that failed: a message then says why, and the dry run is shown again."""
    try:
        generations = {machine_id: int(request.POST[f"{SEEN}{machine_id}"]) for machine_id in edits}
    except (KeyError, ValueError):
        generations = {}
    if not generations or request.POST.get("seen_edit") != form.fingerprint:
        model_admin.message_user(request, "Check the preview, then apply the edit.", level="warning")
        return False
    try:
        edited = machines_edit(
            edits=edits,
            generations=generations,
            reason=form.cleaned_data["reason"],
            author=author_of(request),
        )
    except ApplicationError as error:
        model_admin.message_user(request, error.detail, level="error")
        return False
    names = ", ".join(sorted(machine.name for machine in edited))
    model_admin.message_user(request, f"Edited: {names}. The scheduler is applying the edit.")
    return True
