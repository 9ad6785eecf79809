"""Store paths: names below the root of the artifact store, the same wherever the store is.

A *store path* is a relative name with slashes, such as `<job>/versions/3`. A *bundle* is a folder of the store whose
files are written, read and deleted together: it is whole or absent. Invariant: no URL of another store, and none that
leads out of the root, has a store path.
"""

from urllib.parse import quote, unquote, urlsplit
from uuid import UUID

VERSIONS, CHECKPOINTS, TRAJECTORIES, UPLOADS = "versions", "checkpoints", "trajectories", "uploads"
CHECKPOINT_PREFIX = "batch-"
NUM_KEPT_CHECKPOINTS = 2  # of a job: its trainer deletes older ones
# The depth of bundles below the root: a job's folder has versions and checkpoints one level deeper than the rest.
_DEPTH, _DEPTH_OF_NUMBERED = 2, 3


def job_path(job_id: UUID) -> str:
    return str(job_id)


def versions_path(job_id: UUID) -> str:
    return f"{job_id}/{VERSIONS}"


def version_path(job_id: UUID, version: int) -> str:
    return f"{job_id}/{VERSIONS}/{version}"


def checkpoints_path(job_id: UUID) -> str:
    return f"{job_id}/{CHECKPOINTS}"


def checkpoint_path(job_id: UUID, batch_number: int) -> str:
    return f"{job_id}/{CHECKPOINTS}/{CHECKPOINT_PREFIX}{batch_number}"


def checkpoint_number(name: str) -> int | None:
    """Return the batch of a checkpoint by its name, `batch-<n>`; None for any other name."""
    digits = name.removeprefix(CHECKPOINT_PREFIX)
    is_number = name.startswith(CHECKPOINT_PREFIX) and digits.isascii() and digits.isdecimal()
    return int(digits) if is_number else None


def trajectories_path(job_id: UUID) -> str:
    return f"{job_id}/{TRAJECTORIES}"


def upload_path(upload_id: UUID) -> str:
    return f"{UPLOADS}/{upload_id}"


def bundle_of(store_path: str) -> tuple[str, str]:
    """Split a store path into its bundle and the rest: a file or folder inside, or nothing."""
    names = store_path.split("/")
    is_numbered = len(names) > 1 and names[1] in (VERSIONS, CHECKPOINTS)
    depth = _DEPTH_OF_NUMBERED if is_numbered else _DEPTH
    return "/".join(names[:depth]), "/".join(names[depth:])


def url_of_path(root_url: str, store_path: str) -> str:
    return f"{root_url.rstrip('/')}/{quote(store_path)}"


def path_of_url(root_url: str, url: str) -> str | None:
    """Return the store path of a URL below the root; None for anything else."""
    try:
        root, split = urlsplit(root_url), urlsplit(url)
    except ValueError:
        return None
    if (split.scheme, split.netloc) != (root.scheme, root.netloc) or split.query or split.fragment:
        return None
    base, path = root.path.rstrip("/") + "/", unquote(split.path)
    store_path = path.removeprefix(unquote(base))
    is_below = path.startswith(unquote(base)) and "\0" not in store_path
    return store_path if is_below and not {"", ".", ".."} & set(store_path.split("/")) else None
