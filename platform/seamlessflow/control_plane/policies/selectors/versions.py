"""Reads on policy versions."""

from contextlib import ExitStack
from http import HTTPStatus

from seamlessflow.control_plane.common.errors import ApplicationError, conflict, field_error, not_found
from seamlessflow.control_plane.common.files.artifacts import artifact_store, recorded_pin
from seamlessflow.control_plane.common.files.tar_stream import Member
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.policies.models import PolicyVersion
from seamlessflow.control_plane.policies.selectors.export import ExportForm, NothingToExport, export_members

MAX_VERSION = 2**62


def version_export_members(*, job: Job, version: int, form: ExportForm, pins: ExitStack) -> list[Member]:
    """Return the files of one version as a folder; they can be read until `pins` is closed.

    Raises ApplicationError with the reason if there are none.
    """
    row = PolicyVersion.objects.filter(job=job, version=version).first() if version <= MAX_VERSION else None
    if row is None:
        raise not_found("version", version)
    if row.deleted_at is not None:
        raise ApplicationError(
            f"the files of version {version} are gone: retention keeps the newest "
            f"{job.resolved_spec.train.keep_versions} (train.keep_versions), pinned ones and those in use",
            status=HTTPStatus.GONE,
        )
    store = artifact_store()
    try:
        model = pins.enter_context(recorded_pin(job.model_path)).path
        store_path = store.path_of(row.uri)
        if row.version and store_path is None:
            raise OSError("they are not in the artifact store")
        folder = pins.enter_context(store.pin(store_path)).path if row.version and store_path else model
        return export_members(folder, model, form=form, dtype=job.resolved_spec.model.dtype)
    except NothingToExport as error:
        raise field_error("form", f"'{form}' is not accepted: {error}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise conflict(f"the files of version {version} cannot be read: {error}") from error
