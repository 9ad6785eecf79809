"""Files that would need far more memory than they have bytes are refused by name, and memory use
stays flat.

Each case runs in a process of its own, whose peak is measured.
"""

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from pytest_django import Settings

from seamlessflow.control_plane.common.errors import ApplicationError
from seamlessflow.control_plane.uploads.models import Artifact
from seamlessflow.control_plane.uploads.services import archives
from seamlessflow.control_plane.uploads.services import artifacts as services
from seamlessflow.control_plane.uploads.services.archives import archive_unpack
from seamlessflow.core.artifacts.store_paths import upload_path

MEBIBYTE = 1024**2
GIANT = 128 * MEBIBYTE
ACCEPTED_GROWTH = 64 * MEBIBYTE
MEASURE = """
import json, os, pathlib, resource, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.django_settings"
import django
django.setup()
from seamlessflow.control_plane.common.errors import ApplicationError
{imports}
folder = pathlib.Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    {call}
    said = "taken"
except ApplicationError as error:
    said = error.detail
except RecursionError:
    said = "RecursionError"
growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps([said, growth * 1024]))
"""
MODEL_CHECKS = "from seamlessflow.control_plane.jobs.submission.model_checks"
UNPACK = (
    "from seamlessflow.control_plane.uploads.services.archives import archive_unpack",
    "archive_unpack(archive=folder / 'a.tar.gz', folder=folder, max_bytes=2**20)",
)
DIGEST = (
    "from seamlessflow.control_plane.jobs.submission.tokenizers import tokenizer_digest",
    "tokenizer_digest(folder)",
)
CONFIG = (
    f"{MODEL_CHECKS} import ModelFolder, context_check",
    "context_check(ModelFolder(folder), 8)",
)
HEADERS = (
    f"{MODEL_CHECKS} import ModelFolder, lora_targets_check",
    "lora_targets_check(ModelFolder(folder), ['q_proj'])",
)


def measured(folder: Path, imports: str, call: str) -> tuple[str, int]:
    """Return the message about the file, and by how many bytes the peak of memory grew."""
    script = MEASURE.format(imports=imports, call=call)
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said, growth = json.loads(done.stdout.splitlines()[-1])
    return said, growth


def header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def giant_header_write(path: Path, kind: bytes) -> None:
    """Write an extended header of GIANT bytes, as a few hundred kilobytes of gzip."""
    start = f"{GIANT} path=".encode() if kind == tarfile.XHDTYPE else b""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header(kind, GIANT))
        file.write(start)
        for _ in range(GIANT // MEBIBYTE):
            file.write(b"a" * MEBIBYTE)


@pytest.mark.parametrize(
    "kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE]
)
def test_a_giant_tar_header_uses_little_memory(tmp_path: Path, kind: bytes) -> None:
    giant_header_write(tmp_path / "a.tar.gz", kind)
    assert (tmp_path / "a.tar.gz").stat().st_size < 3 * MEBIBYTE
    said, growth = measured(tmp_path, *UNPACK)
    assert growth < ACCEPTED_GROWTH
    assert said.startswith("file: is not a tar or tar.gz that can be unpacked: it has an extended header of")


def test_headers_of_headers_are_counted(tmp_path: Path) -> None:
    one = header(tarfile.GNUTYPE_LONGNAME, 4) + b"name".ljust(512, b"\0")
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(one * 5000))
    said, _ = measured(tmp_path, *UNPACK)
    assert "extended headers stand before one member" in said


def test_a_giant_tokenizer_is_refused_in_flat_memory(tmp_path: Path) -> None:
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.write(b'{"model": [')
        for _ in range(60):
            file.write(b"{}," * (MEBIBYTE // 3))
        file.write(b"0]}")
    said, growth = measured(tmp_path, *DIGEST)
    assert growth < 2 * ACCEPTED_GROWTH  # the text itself, counted before it is parsed
    assert "tokenizer.json" in said
    assert "values" in said


def test_a_giant_config_is_refused_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"a": [' + b"{}," * (GIANT // 12) + b"0]}")
    said, growth = measured(tmp_path, *CONFIG)
    assert growth < ACCEPTED_GROWTH
    assert "config.json" in said


def test_a_giant_header_of_a_weights_file_is_refused_by_its_size(tmp_path: Path) -> None:
    content = b'{"a": [' + b"{}," * (GIANT // 12) + b"0]}"
    (tmp_path / "model.safetensors").write_bytes(len(content).to_bytes(8, "little") + content)
    said, growth = measured(tmp_path, *HEADERS)
    assert growth < ACCEPTED_GROWTH
    assert "model.safetensors" in said


def packed(path: Path, mode: str, kind: int = tarfile.PAX_FORMAT, **names: bytes) -> Path:
    with tarfile.open(path, f"w:{mode}", format=kind) as tar:  # type: ignore[call-overload]
        for name, content in names.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("mode", ["", "gz", "bz2", "xz"])
@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_honest_archives_of_every_kind_are_unpacked(tmp_path: Path, mode: str, kind: int) -> None:
    long = "a" * 60 + "/" + "é" * 40 + "/" + "b" * 20
    contents = {"model/config.json": b"{}", "model/empty": b"", long: b"x" * 3000}
    archive = packed(tmp_path / "a.tar", mode, kind, **contents)
    folder = tmp_path / "out"
    folder.mkdir()
    assert archive_unpack(archive=archive, folder=folder, max_bytes=10**6) == 3002
    assert {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == contents


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar", "", one=b"x" * 2000)
    for length in (100, 700, 2500, 2560):
        cut = tmp_path / f"{length}.tar"
        cut.write_bytes(archive.read_bytes()[:length])
        folder = tmp_path / f"out{length}"
        folder.mkdir()
        with pytest.raises(ApplicationError, match="can be unpacked"):
            archive_unpack(archive=cut, folder=folder, max_bytes=10**6)


def test_an_archive_of_deeply_nested_folders_is_refused(tmp_path: Path) -> None:
    packed(tmp_path / "a.tar.gz", "gz", tarfile.PAX_FORMAT, **{"a/" * 1500 + "b": b""})

    detail, _ = measured(tmp_path, *UNPACK)

    assert "a path of 1501 names; at most 32 are accepted" in detail


def test_an_archive_of_too_many_entries_is_refused_without_waiting_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_ENTRIES", 20)
    archive = packed(
        tmp_path / "a.tar.gz", "gz", tarfile.PAX_FORMAT, **{f"f{number}": b"" for number in range(30)}
    )
    (folder := tmp_path / "out").mkdir()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)

    with pytest.raises(ApplicationError, match="more than 20 entries"):
        archive_unpack(archive=archive, folder=folder, max_bytes=10**6)

    assert synced == []


def test_every_file_and_folder_is_on_the_disk_before_an_upload_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.ARTIFACT_ROOT, settings.INCOMING_DIR = tmp_path / "root", tmp_path / "root" / "incoming"
    settings.ARTIFACT_ROOT_URL = settings.ARTIFACT_ROOT.as_uri()
    settings.INCOMING_DIR.mkdir(parents=True)
    archive = packed(
        tmp_path / "a.tar", "", tarfile.PAX_FORMAT, **{"model/config.json": b"{}", "model/sub/empty": b""}
    )
    monkeypatch.setattr(services, "_record", lambda *_: None)
    monkeypatch.setattr(services, "transaction", SimpleNamespace(atomic=nullcontext))
    artifact = Artifact(name="a", is_archive=True, sha256="0" * 64)
    published = settings.ARTIFACT_ROOT / upload_path(artifact.id)
    before: set[int] = set()

    def fsync(descriptor: int) -> None:
        if not published.exists():
            before.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    services.artifact_fill(
        artifact, lambda folder: archive_unpack(archive=archive, folder=folder, max_bytes=10**6), "olga"
    )

    assert {path.stat().st_ino for path in (published, *published.rglob("*"))} <= before
