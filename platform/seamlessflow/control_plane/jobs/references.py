"""Resolves a spec's references: `artifact://<id>`, `hub://<name>` or a path under MODEL_ROOTS.

Takes a reference and the project that uses it; returns a local path that exists. Invariant: no reference reaches a
file outside the project's artifacts, the hub caches and the model roots, whatever links or `..` it holds.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

from django.conf import settings

from seamlessflow.control_plane.common.errors import conflict, field_error
from seamlessflow.control_plane.common.files.json_files import (
    CONFIG_BOUNDS,
    TOKENIZER_BOUNDS,
    InvalidJsonFile,
    json_file_read,
)
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.core.types.ids import IdKind, parse_id

ACCEPTED = "artifact://<id>, hub://<name> or an absolute path under MODEL_ROOTS"
ARTIFACT = "artifact://"
MODEL_FILES = ("config.json", "tokenizer.json")
# The bound of files that gateways and trainers read whole. Honest files have a tenth of it at most.
MAX_FILE_BYTES = {
    "tokenizer.json": TOKENIZER_BOUNDS.max_bytes,
    "tokenizer_config.json": CONFIG_BOUNDS.max_bytes,
    "config.json": CONFIG_BOUNDS.max_bytes,
    "generation_config.json": CONFIG_BOUNDS.max_bytes,
    "chat_template.jinja": 1024**2,
}


def model_resolve(*, reference: str, project_id: UUID) -> Path:
    """Return the folder of an initial model. Raises ApplicationError naming `model.source`."""
    field = "model.source"
    folder = _resolve(reference, project_id, field)
    if not folder.is_dir():
        raise field_error(field, f"{reference!r} is not a folder; upload a model as a tar with ?unpack=true")
    folder = _only_subfolder(folder)
    missing = [name for name in MODEL_FILES if not (folder / name).is_file()]
    if not any(folder.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        needed = "config.json, tokenizer.json and *.safetensors"
        raise field_error(field, f"{reference!r} lacks {', '.join(missing)}; a model folder holds {needed}")
    for name, max_bytes in MAX_FILE_BYTES.items():
        if (folder / name).is_file() and (folder / name).stat().st_size > max_bytes:
            raise field_error(field, f"{name} of {reference!r} has more than the {max_bytes} bytes accepted")
    return folder


def model_config_read(folder: Path) -> dict[str, Any]:
    """Return the configuration of the language model in `config.json`. Raises ApplicationError."""
    try:
        config = json_file_read(folder / "config.json", CONFIG_BOUNDS)
    except (OSError, InvalidJsonFile) as error:
        raise field_error("model.source", f"{folder.name}/config.json cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise field_error("model.source", f"{folder.name}/config.json is not a JSON object")
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def model_context_check(folder: Path, *, max_model_len: int) -> None:
    """Refuse sequences that are longer than the model has positions for. Raises ApplicationError."""
    field = "model.max_model_len"
    config = model_config_read(folder)
    num_positions = config.get("max_position_embeddings")
    # Scaled positions reach further than this number; only the model's code knows how far.
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    is_scaled = not isinstance(rope, dict) or rope.get("rope_type", rope.get("type", "default")) != "default"
    if isinstance(num_positions, int) and not is_scaled and max_model_len > num_positions:
        raise field_error(
            field,
            f"{max_model_len} is more than the model's max_position_embeddings, which is {num_positions}",
        )


def tasks_resolve(*, reference: str, project_id: UUID, field: str = "environment.tasks") -> Path:
    """Return the path of the tasks file. Raises ApplicationError naming `field`."""
    path = _resolve(reference, project_id, field)
    if not path.is_file():
        raise field_error(field, f"{reference!r} is not a file; accepted: one JSON object per line")
    return path


def references_hold(*, references: Iterable[str | None], project_id: UUID) -> None:
    """Keep the artifacts among the references until the transaction that makes their job is over.

    A deletion of one of them waits. If one was deleted before, this raises ApplicationError.
    """
    names = [name.removeprefix(ARTIFACT) for name in references if name and name.startswith(ARTIFACT)]
    ids = {parse_id(IdKind.ARTIFACT, name) for name in names}
    held = Artifact.objects.select_for_update(no_key=True).filter(
        id__in=ids, project_id=project_id, deleted_at=None
    )
    if len(held.order_by("id")) < len(ids):
        raise conflict("an upload that the job names was deleted in the meantime")


def _resolve(reference: str, project_id: UUID, field: str) -> Path:
    scheme, separator, name = reference.partition("://")
    if not separator:
        return _under_model_roots(reference, field)
    if scheme == "artifact":
        return _artifact_path(name, project_id, field)
    if scheme == "hub" and field == "model.source":
        return _hub_path(name, field)
    raise field_error(field, f"{reference!r} is not accepted; accepted: {ACCEPTED}")


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


def _artifact_path(name: str, project_id: UUID, field: str) -> Path:
    try:
        artifact_id = parse_id(IdKind.ARTIFACT, name)
    except ValueError as error:
        raise field_error(field, str(error)) from error
    artifact = Artifact.objects.filter(id=artifact_id, project_id=project_id, deleted_at=None).first()
    if artifact is None:
        raise field_error(field, f"there is no artifact {name} in this project")
    return Path(unquote(urlsplit(artifact.uri).path))


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


def _only_subfolder(folder: Path) -> Path:
    """Step into the only subfolder, if there is nothing else: a tar of a folder unpacks into that folder."""
    entries = list(folder.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder
