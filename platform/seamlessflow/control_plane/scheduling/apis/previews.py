"""Dry runs over REST: what an edit of one machine, or of several at once, would do to each running thing. And the end
of a quarantine at a person's request."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from seamlessflow.control_plane.accounts.apis.base import ProjectApi, endpoint
from seamlessflow.control_plane.cluster.apis.serializers import MachineOutput
from seamlessflow.control_plane.cluster.selectors import machine_get_visible
from seamlessflow.control_plane.cluster.services.device_cordons import device_release
from seamlessflow.control_plane.cluster.services.machines import edit_check
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.scheduling.apis.serializers import (
    MachinePreviewInput,
    MachineReleaseInput,
    MachinesPreviewInput,
    MachinesPreviewOutput,
)
from seamlessflow.control_plane.scheduling.selectors.previews import machines_preview
from seamlessflow.control_plane.scheduling.services.judgements import machine_release
from seamlessflow.core.access.operations import Operation
from seamlessflow.core.types.desired_state import MachineEdit


class _PreviewApi(ProjectApi):
    def preview(self, edits: dict[UUID, MachineEdit]) -> Response:
        for machine_id, edit in edits.items():
            machine_get_visible(access=self.access, machine_id=machine_id)
            edit_check(edit)
        self.access.check(self.endpoint.operation)
        return Response(MachinesPreviewOutput(machines_preview(access=self.access, edits=edits)).data)


class MachinePreviewApi(_PreviewApi):
    @endpoint("machine_preview", Operation.MACHINE_EDIT, MachinesPreviewOutput, request=MachinePreviewInput)
    def post(self, request: Request, machine_id: UUID) -> Response:
        """Preview an edit of one machine, without carrying it out. For operators only.

        The answer says what the edit would do to each running phase and job. Nothing is changed.
        """
        return self.preview({machine_id: MachineEdit.of(self.body)})


class MachinesPreviewApi(_PreviewApi):
    @endpoint("machines_preview", Operation.MACHINE_EDIT, MachinesPreviewOutput, request=MachinesPreviewInput)
    def post(self, request: Request) -> Response:
        """Preview edits of several machines together, without carrying them out. For operators only.

        The answer says what the edits would do to each running phase and job. Nothing is changed.
        Naming a machine twice is refused (400).
        """
        edits: dict[UUID, MachineEdit] = {}
        for edit in self.body["edits"]:
            if edit["machine_id"] in edits:
                raise field_error("edits", "names a machine twice; name each machine once")
            edits[edit["machine_id"]] = MachineEdit.of(edit)
        return self.preview(edits)


class MachineReleaseApi(ProjectApi):
    @endpoint("machine_release", Operation.MACHINE_EDIT, MachineOutput, request=MachineReleaseInput)
    def post(self, request: Request, machine_id: UUID) -> Response:
        """End the quarantine of a machine now, instead of waiting for a phase that tries it out. For operators only.

        The failures so far are forgotten. A machine that is in no quarantine answers 409. With `device`, it releases
        that cordoned device instead: the machine uses it again if it finds it well. One that is not cordoned answers
        409.
        """
        access = self.access
        machine_get_visible(access=access, machine_id=machine_id)
        access.check(self.endpoint.operation)
        by = {"machine_id": machine_id, "reason": self.body["reason"], "author": access.author}
        if device := self.body.get("device"):
            device_release(device_id=device, **by)
        else:
            machine_release(**by)
        return Response(MachineOutput(machine_get_visible(access=access, machine_id=machine_id)).data)
