"""Places in the artifact store: names below its root, the same wherever the store is.

A *place* is a relative name with slashes, such as `<job>/versions/3`. A *bundle* is a place whose files are written,
read and deleted together: it is whole or absent. Invariant: no URL of another store, and none that leads out of the
root, has a place.
"""

from urllib.parse import quote, unquote, urlsplit
from uuid import UUID

VERSIONS, CHECKPOINTS, TRAJECTORIES, UPLOADS = "versions", "checkpoints", "trajectories", "uploads"
CHECKPOINT_PREFIX = "batch-"
NUM_KEPT_CHECKPOINTS = 2  # of a job: its trainer deletes older ones
# The depth of bundles below the root: a job's folder has versions and checkpoints one level deeper than the rest.
_DEPTH, _DEPTH_OF_NUMBERED = 2, 3


def job_place(job_id: UUID) -> str:
    return str(job_id)


def versions_place(job_id: UUID) -> str:
    return f"{job_id}/{VERSIONS}"


def version_place(job_id: UUID, version: int) -> str:
    return f"{job_id}/{VERSIONS}/{version}"


def checkpoints_place(job_id: UUID) -> str:
    return f"{job_id}/{CHECKPOINTS}"


def checkpoint_place(job_id: UUID, batch_number: int) -> str:
    return f"{job_id}/{CHECKPOINTS}/{CHECKPOINT_PREFIX}{batch_number}"


def checkpoint_number(name: str) -> int | None:
    """Return the batch of a checkpoint by its name, `batch-<n>`; None for any other name."""
    digits = name.removeprefix(CHECKPOINT_PREFIX)
    is_number = name.startswith(CHECKPOINT_PREFIX) and digits.isascii() and digits.isdecimal()
    return int(digits) if is_number else None


def trajectories_place(job_id: UUID) -> str:
    return f"{job_id}/{TRAJECTORIES}"


def upload_place(upload_id: UUID) -> str:
    return f"{UPLOADS}/{upload_id}"


def bundle_of(place: str) -> tuple[str, str]:
    """Split a place into its bundle and the rest: a file or folder inside, or nothing."""
    parts = place.split("/")
    is_numbered = len(parts) > 1 and parts[1] in (VERSIONS, CHECKPOINTS)
    depth = _DEPTH_OF_NUMBERED if is_numbered else _DEPTH
    return "/".join(parts[:depth]), "/".join(parts[depth:])


def place_url(root_url: str, place: str) -> str:
    return f"{root_url.rstrip('/')}/{quote(place)}"


def place_of_url(root_url: str, url: str) -> str | None:
    """Return the place of a URL below the root; None for anything else."""
    try:
        root, parts = urlsplit(root_url), urlsplit(url)
    except ValueError:
        return None
    if (parts.scheme, parts.netloc) != (root.scheme, root.netloc) or parts.query or parts.fragment:
        return None
    base, path = root.path.rstrip("/") + "/", unquote(parts.path)
    place = path.removeprefix(unquote(base))
    is_below = path.startswith(unquote(base)) and "\0" not in place
    return place if is_below and not {"", ".", ".."} & set(place.split("/")) else None
