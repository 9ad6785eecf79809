"""Models in GGUF files: turned into an upload of the project when a job names one, because nothing else trains them.

Takes a spec; returns the same, or one whose `model.source` is the upload with the converted model. Invariant: a file is
converted once for a project, and the upload is subject to the same rules as any other.
"""

import fcntl
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import file_digest
from pathlib import Path

from django.conf import settings

from seamlessflow.control_plane.accounts.models import Project, User
from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.jobs.submission.references import ARTIFACT, reference_resolve
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.control_plane.uploads.services.artifacts import artifact_fill
from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.types.ids import IdKind, show_id

FIELD = "model.source"
PROGRAM = "seamlessflow_workers.train.gguf"  # has torch; this process has not
MAX_BYTES = 2 * 1024**3  # a larger file takes longer to convert than a request may take
TIMEOUT_S = 600.0
SUFFIX = ".gguf"
# A file of a stranger is read there, so none of our secrets is.
_INHERITED = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")


def gguf_resolve(spec: JobSpec, *, project: Project, user: User, author: str) -> JobSpec:
    """Raises ApplicationError naming `model.source`."""
    source = spec.model.source
    with ExitStack() as pins:
        folder = reference_resolve(source, project.id, FIELD, pins).path
        files = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else [folder]
        if not files or files[0].suffix != SUFFIX or any(folder.glob("*.safetensors")):
            return spec
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise field_error(
                FIELD, f"{source!r} holds several GGUF files ({names}); accepted: a folder with one"
            )
        artifact = _artifact(files[0], project, user, author)
    named = f"{ARTIFACT}{show_id(IdKind.ARTIFACT, artifact.id)}"
    return spec.model_copy(update={"model": spec.model.model_copy(update={"source": named})})


def _artifact(file: Path, project: Project, user: User, author: str) -> Artifact:
    if problem := _problem(file):
        raise field_error(
            FIELD,
            f"{file.name} is a GGUF file, and {problem}; convert it where a worker is installed "
            f"(python -m {PROGRAM} {file.name} FOLDER) and name or upload that folder",
        )
    with file.open("rb") as stream:
        digest = file_digest(stream, "sha256").hexdigest()
    name = f"{file.stem} (converted from GGUF)"
    with _alone(digest):  # a client that lost patience asks again
        known = Artifact.objects.filter(project=project, sha256=digest, name=name, deleted_at=None).first()
        made = Artifact(project=project, created_by=user, name=name, is_archive=True, sha256=digest)
        return known or artifact_fill(made, lambda folder: _convert(file, folder / file.stem), author)


@contextmanager
def _alone(digest: str) -> Iterator[None]:
    """Let one request of this host at a time convert a file."""
    with (settings.INCOMING_DIR / f"gguf-{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _problem(file: Path) -> str:
    if file.stat().st_size > MAX_BYTES:
        return f"larger than the {MAX_BYTES} bytes that are converted when a job is submitted"
    lacking = [name for name in ("torch", "transformers", "gguf") if importlib.util.find_spec(name) is None]
    return (
        f"this installation's web process has no {' and no '.join(lacking)} to convert it" if lacking else ""
    )


def _convert(file: Path, folder: Path) -> int:
    command = [sys.executable, "-m", PROGRAM, str(file), str(folder)]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S, env=_environment()
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["the converter said nothing"]
        raise field_error(FIELD, f"{file.name} cannot be converted: {lines[-1]}") from error
    except subprocess.TimeoutExpired as error:
        raise field_error(FIELD, f"{file.name} was not converted within {TIMEOUT_S:.0f} s") from error
    return sum(path.stat().st_size for path in folder.iterdir())


def _environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
