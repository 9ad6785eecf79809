"""Refuses a model folder whose files say already that nothing can load it.

Takes the folder of a submitted model; raises all that is wrong with it. Engines and trainers ask the same again before
they load (`runtime.model_folders`). Invariant: no weight is read, and nothing is built as large as the config says.
"""

from pathlib import Path

from seamlessflow.control_plane.common.errors import ApplicationError, FieldFault, field_error
from seamlessflow.runtime.model_folders import model_folder_problems

FIELD = "model.source"


def model_files_check(folder: Path) -> None:
    """Raise ApplicationError naming `model.source`, with a fault for each problem."""
    try:
        problems = list(model_folder_problems(folder))
    except OSError as error:
        raise field_error(FIELD, f"the files of {folder.name} cannot be read: {error}") from error
    if problems:
        faults = tuple(FieldFault(FIELD, f"{folder.name}/{problem}") for problem in problems)
        raise ApplicationError("; ".join(f"{FIELD}: {fault.detail}" for fault in faults), faults=faults)
