"""The gateway's report on a model folder when a job is submitted.

The control plane starts `FOLDER_CHECK` with a folder and a family, and reads one `FolderReport` as JSON from its
output. Invariant: a folder that is refused could not serve a single turn; what fails only some turns is a note.
"""

import msgspec

from seamlessflow.core.families import ModelFamily

FOLDER_CHECK = "seamlessflow.data_plane.turns.rendering.folder_check"


class FolderReport(msgspec.Struct, frozen=True, kw_only=True):
    refusal: str | None = None  # why no turn can be served; it completes "the model cannot serve: "
    family: ModelFamily = ModelFamily.AUTO  # as which the answers are read
    is_verified: bool = False  # a call that the template wrote was read back
    notes: tuple[str, ...] = ()  # sentences on what does not work, or was not shown to work
