"""Retention policies in the admin site: one form for a project's, one for the installation's."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from seamlessflow.control_plane.accounts.admin.access import access_of_staff, may_edit
from seamlessflow.control_plane.accounts.models import Project
from seamlessflow.control_plane.common.admin.pages import ReadOnlyAdmin, RecordedAdmin, author_of
from seamlessflow.control_plane.common.models import Removal
from seamlessflow.control_plane.storage.models import RetentionPolicy
from seamlessflow.control_plane.storage.services.retention import policy_edit
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.retention.policy import SETTINGS, InvalidPolicy, settings_check


class RetentionPolicyForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = RetentionPolicy
        fields = ["project", "settings"]
        help_texts = {
            "settings": "JSON object of settings by name; null keeps data forever. "
            + " ".join(f"{name} ({setting.default}): {setting.help}" for name, setting in SETTINGS.items())
        }

    def clean_settings(self) -> dict[str, int | None]:
        values = self.cleaned_data["settings"]
        if not isinstance(values, dict):
            raise forms.ValidationError("The settings must be a JSON object.")
        try:
            return settings_check(values)
        except InvalidPolicy as error:
            raise forms.ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        of_installation = [
            name for name in cleaned.get("settings") or {} if SETTINGS[name].is_of_installation
        ]
        if cleaned.get("project") and of_installation:
            raise forms.ValidationError(f"{of_installation[0]} can only be set for the installation.")
        return cleaned


@admin.register(RetentionPolicy)
class RetentionPolicyAdmin(RecordedAdmin):
    """Policies; one without a project has the installation's defaults. Edits leave an event, as over REST."""

    form = RetentionPolicyForm
    list_display = ["__str__", "settings", "edited_by", "edited_at"]
    list_select_related = ["project"]

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Forbid deleting: saving empty settings has the same effect and leaves an event."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: RetentionPolicy | None = None) -> bool:
        allowed = super().has_change_permission(request, obj)
        return allowed and (obj is None or may_edit(request, Operation.RETENTION_EDIT, obj.project_id))

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Offer only the projects whose policy the caller may edit."""
        if db_field.name == "project":
            access = access_of_staff(request)
            editable = [one for one in access.readable if access.may(Operation.RETENTION_EDIT, one)]
            options["queryset"] = Project.objects.filter(id__in=editable)
        return super().formfield_for_foreignkey(db_field, request, **options)

    def save_model(
        self, request: HttpRequest, obj: RetentionPolicy, form: RetentionPolicyForm, change: bool
    ) -> None:
        wanted = form.cleaned_data["settings"]
        known = RetentionPolicy.objects.filter(project=obj.project).first()
        gone = [] if known is None else sorted(set(known.settings) - set(wanted))
        policy_edit(project=obj.project, changes=wanted, reset=gone, author=author_of(request))
        obj.pk = RetentionPolicy.objects.get_or_create(project=obj.project)[0].pk


@admin.register(Removal)
class RemovalAdmin(ReadOnlyAdmin):
    list_display = ["requested_at", "kind", "name", "number", "num_bytes", "reason", "author", "finished_at"]
    list_filter = ["kind"]
    ordering = ["-id"]  # identifiers sort by age
