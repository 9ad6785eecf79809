"""Paths of versions and checkpoints in the artifact store."""

from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

from django.conf import settings


def job_folder(job_id: UUID) -> Path:
    """Return the folder of a job's versions and checkpoints."""
    root: Path = settings.ARTIFACT_ROOT.resolve()
    return root / str(job_id)


def artifact_path(uri: str) -> Path | None:
    """Return the path of a file:// URL inside the artifact store; None for anything else."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    try:
        path = Path(unquote(parts.path)).resolve()
    except (ValueError, OSError, RuntimeError):  # NUL, too long or a circle of links: not a valid path
        return None
    root = settings.ARTIFACT_ROOT.resolve()
    return path if path.is_relative_to(root) and path != root else None
