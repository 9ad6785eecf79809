"""What only a store of objects can get wrong, on a real S3 server."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest

from seamlessflow.core.artifacts.store_paths import upload_path, version_path
from seamlessflow.runtime.artifacts.node_cache import CacheFull
from seamlessflow.runtime.artifacts.object_store import CHUNK_BYTES
from seamlessflow.runtime.artifacts.opening import store_open
from seamlessflow.runtime.artifacts.store import ArtifactDamaged, ArtifactMissing, ArtifactStore, StoreError
from tests.contract.artifacts.test_artifact_store import FILES, Hosts, read, write
from tests.fixtures.s3_server import SECRET_KEY, S3Server, object_write, objects, s3_server

__all__ = ["s3_server"]

JOB = UUID(int=1)
STORE_PATH = version_path(JOB, 1)
_numbers = count()


@pytest.fixture
def hosts(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    return Hosts(s3_server.root(f"objects {next(_numbers)}"), tmp_path, monkeypatch)


def objects_of(store: ArtifactStore, store_path: str) -> Iterator[str]:
    yield from (
        str(name) for name in objects().find(store.url_of(store_path)) if not name.endswith("whole.json")
    )


def damage(store: ArtifactStore, store_path: str) -> None:
    (name,) = (name for name in objects_of(store, store_path) if name.endswith("a.safetensors"))
    object_write(name, b"y" * len(FILES["a.safetensors"]))


def test_bytes_that_changed_in_the_store_are_never_handed_out(hosts: Hosts, tmp_path: Path) -> None:
    write(hosts(), STORE_PATH)
    damage(hosts(), STORE_PATH)

    with pytest.raises(ArtifactDamaged, match=r"a\.safetensors in s3://.* is damaged"):
        hosts("reader").pin(STORE_PATH)
    assert not list((tmp_path / "reader").rglob("*.safetensors"))


def test_files_that_are_not_what_their_writer_digested_never_become_part_of_the_store(hosts: Hosts) -> None:
    store = hosts()
    folder = store.workspace(STORE_PATH)
    folder.mkdir(parents=True)
    (folder / "a.safetensors").write_bytes(b"bit rot")

    with pytest.raises(ArtifactDamaged, match=r"a\.safetensors .* differs from the file that was written"):
        store.keep(STORE_PATH, expected={"a.safetensors": "0" * 64})
    assert not store.exists(STORE_PATH)


def test_the_host_that_wrote_a_bundle_and_one_that_has_it_fetch_nothing(hosts: Hosts) -> None:
    write(hosts(), STORE_PATH)
    read(hosts("reader"), STORE_PATH)
    damage(hosts(), STORE_PATH)  # whoever fetched it now would see that

    assert read(hosts(), STORE_PATH) == FILES
    assert read(hosts("reader"), STORE_PATH) == FILES


def test_a_bundle_that_is_kept_twice_is_sent_once(hosts: Hosts) -> None:
    store = hosts()
    write(store, STORE_PATH)
    before = sorted(objects_of(store, STORE_PATH))
    store.keep(STORE_PATH)  # its writer died before it could announce it, and another one repeats it
    assert sorted(objects_of(store, STORE_PATH)) == before


def test_readers_of_text_do_not_fetch_weights(hosts: Hosts, tmp_path: Path) -> None:
    store_path = upload_path(JOB)
    write(
        hosts(),
        store_path,
        {"config.json": b"{}", "chat_template.jinja": b"", "model.safetensors": b"x" * 1000},
    )
    with hosts("gateway").pin(store_path, text_only=True) as pinned:
        assert sorted(path.name for path in pinned.path.iterdir()) == ["chat_template.jinja", "config.json"]
    assert not list((tmp_path / "gateway").rglob("*.safetensors"))
    with hosts("gateway").pin(store_path) as pinned:
        assert (pinned.path / "model.safetensors").stat().st_size == 1000


def test_a_file_of_several_parts_arrives_as_it_was(hosts: Hosts) -> None:
    large = {"large": bytes(range(256)) * (CHUNK_BYTES // 256) + b"the end"}
    write(hosts(), STORE_PATH, large)
    assert read(hosts("reader"), STORE_PATH) == large


def test_a_version_larger_than_the_cache_says_which_setting_to_raise(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(hosts(), STORE_PATH)
    monkeypatch.setenv("SEAMLESSFLOW_CACHE_BYTES", "1000")
    with pytest.raises(CacheFull, match="raise SEAMLESSFLOW_CACHE_BYTES"):
        hosts("small").pin(STORE_PATH)


def test_a_store_that_is_away_or_refuses_says_so_without_any_secret(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, s3_server: S3Server
) -> None:
    store = hosts()
    write(store, STORE_PATH)
    elsewhere = store_open("s3://no-such-bucket/prefix")
    with pytest.raises(ArtifactMissing):
        elsewhere.pin(STORE_PATH)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr("seamlessflow.runtime.artifacts.opening._NUM_TRIES", 1)
    with pytest.raises(StoreError, match=r"the artifact store s3://.* cannot be used: ") as away:
        hosts("lost").pin(STORE_PATH)
    assert SECRET_KEY not in str(away.value)
