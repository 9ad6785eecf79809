"""Resolves a spec's references: `artifact://<id>`, `hub://<name>` or a path under MODEL_ROOTS.

Takes a reference and the project that uses it; returns local files that exist, and the URL or path that a job records
so that every host finds them. Invariant: no reference reaches a file outside the project's artifacts, the hub caches
and the model roots, whatever links or `..` it has.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

from django.conf import settings

from seamlessflow.control_plane.common.errors import conflict, field_error
from seamlessflow.control_plane.common.files.artifacts import artifact_store, recorded_as
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.core.types.ids import IdKind, parse_id
from seamlessflow.runtime.artifacts.store import StoreError
from seamlessflow.runtime.json_files import CONFIG_BOUNDS, TOKENIZER_BOUNDS

ACCEPTED = "artifact://<id>, hub://<name> or an absolute path under MODEL_ROOTS"
ARTIFACT = "artifact://"
MODEL_FILES = ("config.json", "tokenizer.json")
# The bound of files that gateways and trainers read whole. Honest files have a tenth of it at most.
MAX_FILE_BYTES = {
    "tokenizer.json": TOKENIZER_BOUNDS.max_bytes,
    "tokenizer_config.json": CONFIG_BOUNDS.max_bytes,
    "config.json": CONFIG_BOUNDS.max_bytes,
    "generation_config.json": CONFIG_BOUNDS.max_bytes,
    "special_tokens_map.json": CONFIG_BOUNDS.max_bytes,
    "added_tokens.json": CONFIG_BOUNDS.max_bytes,
    "chat_template.jinja": 1024**2,
}
MAX_TEMPLATES = 16  # beside chat_template.jinja


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a reference stands for: files on this host, and the words by which a job records them for every host."""

    path: Path
    recorded: str


def model_resolve(*, reference: str, project_id: UUID, pins: ExitStack) -> Resolved:
    """Return the folder of an initial model, which can be read until `pins` is closed.

    Raises ApplicationError naming `model.source`.
    """
    field = "model.source"
    found = reference_resolve(reference, project_id, field, pins)
    if not found.path.is_dir():
        raise field_error(field, f"{reference!r} is not a folder; upload a model as a tar with ?unpack=true")
    found = _only_subfolder(found)
    folder = found.path
    missing = [name for name in MODEL_FILES if not (folder / name).is_file()]
    if not any(folder.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        needed = "config.json, tokenizer.json and *.safetensors"
        raise field_error(field, f"{reference!r} lacks {', '.join(missing)}; a model folder holds {needed}")
    named = [str(file.relative_to(folder)) for file in (folder / "additional_chat_templates").glob("*.jinja")]
    if len(named) > MAX_TEMPLATES:
        raise field_error(
            field, f"{reference!r} has {len(named)} additional chat templates; accepted: {MAX_TEMPLATES}"
        )
    bounds = MAX_FILE_BYTES | dict.fromkeys(named, MAX_FILE_BYTES["chat_template.jinja"])
    for name, max_bytes in bounds.items():
        if (folder / name).is_file() and (folder / name).stat().st_size > max_bytes:
            raise field_error(field, f"{name} of {reference!r} has more than the {max_bytes} bytes accepted")
    return found


def tasks_resolve(
    *, reference: str, project_id: UUID, pins: ExitStack, field: str = "environment.tasks"
) -> Resolved:
    """Return the tasks file, which can be read until `pins` is closed. Raises ApplicationError naming `field`."""
    found = reference_resolve(reference, project_id, field, pins)
    if not found.path.is_file():
        raise field_error(field, f"{reference!r} is not a file; accepted: one JSON object per line")
    return found


def references_hold(*, references: Iterable[str | None], project_id: UUID) -> None:
    """Keep the artifacts among the references until the transaction that makes their job is over.

    A deletion of one of them waits. If one was deleted before, this raises ApplicationError.
    """
    names = [name.removeprefix(ARTIFACT) for name in references if name and name.startswith(ARTIFACT)]
    ids = {parse_id(IdKind.ARTIFACT, name) for name in names}
    locked = Artifact.objects.select_for_update(no_key=True).filter(
        id__in=ids, project_id=project_id, deleted_at=None
    )
    if len(locked.order_by("id")) < len(ids):
        raise conflict("an upload that the job names was deleted in the meantime")


def reference_resolve(reference: str, project_id: UUID, field: str, pins: ExitStack) -> Resolved:
    """Return what a reference stands for, whatever it is. Raises ApplicationError naming `field`."""
    scheme, separator, name = reference.partition("://")
    if not separator:
        return _own(_under_model_roots(reference, field))
    if scheme == "artifact":
        return _artifact(name, project_id, field, pins)
    if scheme == "hub" and field == "model.source":
        return _own(_hub_path(name, field))
    raise field_error(field, f"{reference!r} is not accepted; accepted: {ACCEPTED}")


def _own(path: Path) -> Resolved:
    """A path outside the store: each host that needs the files must have them under the same path."""
    return Resolved(path, str(path))


def _under_model_roots(reference: str, field: str) -> Path:
    path = Path(reference)
    if not path.is_absolute():
        raise field_error(field, f"{reference!r} is not accepted; accepted: {ACCEPTED}")
    try:
        resolved = path.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # too long, not encodable, links in a circle
        raise field_error(field, f"{reference!r} is not a path: {error}") from error
    if resolved.is_relative_to(settings.ARTIFACT_ROOT.resolve()):
        # Projects share the folder; only the table of artifacts knows who owns a file in it.
        raise field_error(field, f"{reference!r} is in the artifact store; accepted: artifact://<id>")
    if not any(resolved.is_relative_to(root) for root in settings.MODEL_ROOTS):
        raise field_error(field, f"{reference!r} is not under MODEL_ROOTS; accepted: {ACCEPTED}")
    if not resolved.exists():
        raise field_error(field, f"{reference!r} does not exist")
    return resolved


def _artifact(name: str, project_id: UUID, field: str, pins: ExitStack) -> Resolved:
    try:
        artifact_id = parse_id(IdKind.ARTIFACT, name)
    except ValueError as error:
        raise field_error(field, str(error)) from error
    artifact = Artifact.objects.filter(id=artifact_id, project_id=project_id, deleted_at=None).first()
    if artifact is None:
        raise field_error(field, f"there is no artifact {name} in this project")
    store = artifact_store()
    store_path = store.path_of(artifact.uri)
    if store_path is None:
        raise field_error(field, f"the files of {name} are in another artifact store, at {artifact.uri}")
    try:
        pinned = pins.enter_context(store.pin(store_path))
    except StoreError as error:
        raise field_error(field, f"the files of {name} cannot be read: {error}") from error
    return Resolved(pinned.path, recorded_as(store_path))


def _hub_path(name: str, field: str) -> Path:
    """Return the newest snapshot of a model in a cache with Hugging Face's layout."""
    for cache in settings.HUB_CACHE:
        snapshots = (cache / f"models--{name.replace('/', '--')}" / "snapshots").resolve()
        if snapshots.is_relative_to(cache) and snapshots.is_dir():
            newest = max(snapshots.iterdir(), key=lambda folder: folder.stat().st_mtime, default=None)
            if newest is not None:
                return newest
    raise field_error(
        field,
        f"hub://{name} is in no hub cache of this installation (SEAMLESSFLOW_HUB_CACHE); upload the model instead",
    )


def _only_subfolder(found: Resolved) -> Resolved:
    """Step into the only subfolder, if there is nothing else: a tar of a folder unpacks into that folder."""
    entries = list(found.path.iterdir())
    if len(entries) != 1 or not entries[0].is_dir():
        return found
    name = entries[0].name
    recorded = f"{found.recorded}/{name if found.recorded.startswith('/') else quote(name)}"
    return Resolved(entries[0], recorded)
