"""What every artifact store promises: run on a folder, and on objects of a real S3 server with a cache."""

from datetime import timedelta
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from seamlessflow.core.artifacts.store_paths import (
    checkpoint_path,
    checkpoints_path,
    job_path,
    upload_path,
    version_path,
    versions_path,
)
from seamlessflow.runtime.artifacts import object_store
from seamlessflow.runtime.artifacts.opening import store_open
from seamlessflow.runtime.artifacts.store import ArtifactMissing, ArtifactStore
from tests.fixtures.s3_server import S3Server, object_write, s3_server

__all__ = ["s3_server"]

JOB, OTHER = UUID(int=1), UUID(int=2)
FILES = {"a.safetensors": b"x" * 100_000, "nested/b.json": b"{}", "empty": b""}
_numbers = count()


class Hosts:
    """One store as several hosts see it."""

    def __init__(self, root: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._folder = folder
        self._patch = patch

    def __call__(self, name: str = "writer") -> ArtifactStore:
        self._patch.setenv("SEAMLESSFLOW_CACHE_DIR", str(self._folder / name))
        return store_open(self._root)


@pytest.fixture(params=["folder", "objects"])
def hosts(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    if request.param == "folder":
        return Hosts((tmp_path / "store").as_uri(), tmp_path, monkeypatch)
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    return Hosts(server.root(f"contract {next(_numbers)}"), tmp_path, monkeypatch)


def write(store: ArtifactStore, store_path: str, files: dict[str, bytes] = FILES) -> None:
    """Write a bundle as all writers do: aside, then renamed, then kept."""
    folder = store.workspace(store_path)
    aside = folder.with_name(f".writing-{folder.name}")
    for name, raw in files.items():
        (aside / name).parent.mkdir(parents=True, exist_ok=True)
        (aside / name).write_bytes(raw)
    aside.rename(folder)
    store.keep(store_path)


def read(store: ArtifactStore, store_path: str) -> dict[str, bytes]:
    with store.pin(store_path) as pinned:
        found = (path for path in pinned.path.rglob("*") if path.is_file())
        return {path.relative_to(pinned.path).as_posix(): path.read_bytes() for path in found}


def test_what_one_host_keeps_every_other_host_reads(hosts: Hosts) -> None:
    store_path = version_path(JOB, 3)
    write(hosts(), store_path)

    assert read(hosts("reader"), store_path) == FILES
    assert hosts("reader").files(store_path) == {name: len(raw) for name, raw in FILES.items()}
    assert b"".join(hosts("third").read(store_path, "a.safetensors")) == FILES["a.safetensors"]


def test_a_url_names_the_same_place_on_every_host_and_nothing_outside_the_store(hosts: Hosts) -> None:
    store = hosts()
    store_path = upload_path(OTHER) + "/a model/config.json"
    assert hosts("reader").path_of(store.url_of(store_path)) == store_path
    for foreign in (
        "file:///etc", "s3://elsewhere/x", f"{store.url}/../x", f"{store.url}/a/../../x", store.url, "http://a/b", "",
    ):  # fmt: skip
        assert store.path_of(foreign) is None, foreign


def test_only_whole_bundles_have_names(hosts: Hosts) -> None:
    store = hosts()
    for number in (2, 10):
        write(store, checkpoint_path(JOB, number))
    write(store, checkpoint_path(OTHER, 1))
    unfinished = store.workspace(checkpoint_path(JOB, 11)).with_name(".saving-11")
    unfinished.mkdir()
    (unfinished / "state").write_bytes(b"half")

    assert hosts("reader").names(checkpoints_path(JOB)) == ["batch-10", "batch-2"]
    assert hosts("reader").names(versions_path(JOB)) == []
    assert not hosts("reader").exists(checkpoint_path(JOB, 11))
    with pytest.raises(ArtifactMissing):
        hosts("reader").pin(checkpoint_path(JOB, 11))


def test_a_file_inside_a_bundle_is_found_by_its_own_place(hosts: Hosts) -> None:
    store_path = upload_path(OTHER)
    write(hosts(), store_path)
    reader = hosts("reader")
    with reader.pin(f"{store_path}/nested") as pinned:
        assert (pinned.path / "b.json").read_bytes() == b"{}"
    assert reader.exists(f"{store_path}/nested/b.json")
    assert not reader.exists(f"{store_path}/nested/c.json")
    with pytest.raises(ArtifactMissing):
        reader.pin(f"{store_path}/nested/c.json")


def test_removing_a_job_takes_its_bundles_and_nobody_elses(hosts: Hosts) -> None:
    store = hosts()
    for job in (JOB, OTHER):
        write(store, version_path(job, 1))
        write(store, checkpoint_path(job, 1))
    read(hosts("reader"), version_path(JOB, 1))

    hosts("web").remove(job_path(JOB))
    hosts("web").remove(job_path(JOB))  # an interrupted removal is repeated

    for name in ("web", "reader"):
        with pytest.raises(ArtifactMissing):
            hosts(name).pin(version_path(JOB, 1))
    assert hosts("reader").names(checkpoints_path(JOB)) == []
    assert read(hosts("reader"), version_path(OTHER, 1)) == FILES


def test_a_copy_survives_the_removal_of_its_source_and_differs_where_it_was_told_to(hosts: Hosts) -> None:
    source, target = checkpoint_path(JOB, 4), checkpoint_path(OTHER, 0)
    write(hosts(), source)
    web = hosts("web")

    web.copy(source, target, replaced={"nested/b.json": b'{"batch": 0}'})
    assert read(hosts("reader"), source) == FILES
    web.remove(source)

    assert read(hosts("reader"), target) == {**FILES, "nested/b.json": b'{"batch": 0}'}
    with pytest.raises(ArtifactMissing):
        web.copy(source, checkpoint_path(OTHER, 1), replaced={})


def test_a_bundle_that_is_written_again_is_read_as_it_was_written_last(hosts: Hosts) -> None:
    store_path, changed = version_path(JOB, 5), {"a.safetensors": b"y" * 100_000}
    write(hosts("first"), store_path)
    assert read(hosts("reader"), store_path) == FILES
    if hosts("second").is_local:
        hosts("second").remove(store_path)  # as writers do
    write(hosts("second"), store_path, changed)

    assert read(hosts("reader"), store_path) == changed
    assert read(hosts("first"), store_path) == changed


def test_what_killed_writers_left_is_removed_and_bundles_stay(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "LEFTOVER_AFTER", timedelta(0))
    store = hosts()
    write(store, version_path(JOB, 1))
    leave_half_an_upload(store)
    assert store.leftovers_remove(versions_path(JOB)) >= 1
    assert store.leftovers_remove(versions_path(JOB)) == 0
    assert read(hosts("reader"), version_path(JOB, 1)) == FILES


def leave_half_an_upload(store: ArtifactStore) -> None:
    store_path = version_path(JOB, 2)
    if store.is_local:
        folder = store.workspace(store_path).with_name(".writing-2")
        folder.mkdir(parents=True)
        (folder / "a.safetensors").write_bytes(b"half")
        return
    object_write(store.url_of(f"{store_path}/0123456789abcdef/a.safetensors"), b"half")
