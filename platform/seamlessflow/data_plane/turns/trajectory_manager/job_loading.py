"""Loads a job for its sessions: its specification and the text files of its model, from a folder or a store of objects.

In: the row of a job. Out: a `LiveJob`, or the error that clients of its sessions read.
"""

from http import HTTPStatus

from seamlessflow.core.job_spec import InvalidJobSpec, job_spec_parse
from seamlessflow.data_plane.errors import ApiError
from seamlessflow.data_plane.store.jobs import JobRow
from seamlessflow.data_plane.turns.rendering.chat_template import TemplateRefused
from seamlessflow.data_plane.turns.rendering.model_files import ModelUnusable
from seamlessflow.data_plane.turns.rendering.model_text import model_text_load
from seamlessflow.data_plane.turns.trajectory_manager.live import LiveJob
from seamlessflow.runtime.artifacts.opening import InvalidRoot
from seamlessflow.runtime.artifacts.recorded import recorded_pin
from seamlessflow.runtime.artifacts.store import ArtifactMissing, PinnedFiles, StoreError


def job_load(row: JobRow, *, artifact_root: str = "") -> LiveJob:
    """Load a job. Raises ApiError: 400 if it cannot be served, 503 if its files cannot be fetched now.

    `artifact_root`: the store with the files that are in no folder of this host.
    """
    try:
        return _job(row, artifact_root)
    except (ModelUnusable, TemplateRefused, InvalidJobSpec, InvalidRoot, ArtifactMissing) as error:
        raise ApiError(
            HTTPStatus.BAD_REQUEST, f"The job cannot be served: {error}.", code="job_unusable"
        ) from error
    except StoreError as error:
        message = f"The job's files cannot be fetched now: {error}."
        raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, message, code="files_unavailable") from error


def _job(row: JobRow, artifact_root: str) -> LiveJob:
    spec, pinned = job_spec_parse(row.spec), list[PinnedFiles]()

    def here(recorded: str, *, text_only: bool = False) -> str:
        if not recorded or recorded.startswith("/"):
            return recorded  # its reader refuses a wrong one
        pinned.append(recorded_pin(artifact_root, recorded, text_only=text_only))
        return str(pinned[-1].path)

    model = here(row.model_path, text_only=True)
    return LiveJob(
        job_id=row.job_id,
        project_id=row.project_id,
        name=row.name,
        spec=spec,
        tasks_path=here(row.tasks_path),
        evaluation_tasks_path=here(row.evaluation_tasks_path),
        text=model_text_load(model, spec.model.family),
        model_path=model,
        num_dataset_groups=row.num_dataset_groups,
        pinned=pinned,
    )
