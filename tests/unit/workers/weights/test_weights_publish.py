"""Published weights: whole or absent, verified when read."""

import errno
import math
import os
import shutil
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from safetensors.numpy import load

from seamlessflow_workers.weights.manifest import (
    MANIFEST_NAME,
    WeightsReadError,
    manifest_digest,
    manifest_read,
)
from seamlessflow_workers.weights.tensors import RawTensor, TensorLayout
from seamlessflow_workers.weights.transports.file.receiving import weights_verify
from seamlessflow_workers.weights.transports.file.sending import (
    PublishedWeights,
    WeightsWriteError,
    weights_publish,
)
from seamlessflow_workers.weights.transports.file.shards import (
    MAX_BUFFERED_BUCKETS,
    ShardOrder,
    shards_write,
)
from tests.fakes.tensors_in_memory import TensorsInMemory

JOB = UUID("01890000-0000-7000-8000-000000000001")


def raw(array: np.ndarray) -> RawTensor:
    return RawTensor(dtype="F32", shape=array.shape, data=array.tobytes(), num_bytes=array.nbytes)


def some_arrays(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"embed.weight": (16, 4), "norm.weight": (4,), "lm_head.weight": (16, 4), "scale": ()}
    return {name: np.asarray(rng.normal(size=shape), dtype=np.float32) for name, shape in shapes.items()}


def publish(
    versions: Path, arrays: dict[str, np.ndarray], *, version: int = 3, max_shard_bytes: int = 2**31
) -> PublishedWeights:
    return weights_publish(
        versions,
        TensorsInMemory({name: raw(array) for name, array in arrays.items()}),
        job_id=JOB,
        version=version,
        parent_version=version - 1,
        dtype="float32",
        max_shard_bytes=max_shard_bytes,
    )


@pytest.mark.parametrize("max_shard_bytes,num_shards", [(2**31, 1), (300, 2), (1, 4)])
def test_what_was_published_is_read_back_bit_for_bit(
    tmp_path: Path, max_shard_bytes: int, num_shards: int
) -> None:
    arrays = some_arrays()
    published = publish(tmp_path, arrays, max_shard_bytes=max_shard_bytes)
    manifest = manifest_read(published.folder)
    shards = {name: load((published.folder / name).read_bytes()) for name in manifest.shards}
    assert len(shards) == num_shards
    read = {name: shards[entry.shard][name] for name, entry in manifest.tensors.items()}
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(read[name], array)
        assert manifest.tensors[name].shape == list(array.shape)
    assert (manifest.version, manifest.parent_version, manifest.job_id) == (3, 2, JOB)
    assert manifest.total_bytes == sum(array.nbytes for array in arrays.values())


class CountedTensors:
    """Arrays made when asked for; knows how many bytes of them are alive."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self._shapes = shapes
        self.buckets: list[list[str]] = []
        self.num_alive = self.most_alive = 0

    def layouts(self) -> dict[str, TensorLayout]:
        return {
            name: TensorLayout("F32", shape, 4 * math.prod(shape)) for name, shape in self._shapes.items()
        }

    def tensors(self, names: Sequence[str]) -> dict[str, RawTensor]:
        self.buckets.append(list(names))
        return {name: self._make(name) for name in names}

    def _make(self, name: str) -> RawTensor:
        array = np.full(self._shapes[name], len(name), dtype=np.float32)
        self.num_alive += array.nbytes
        self.most_alive = max(self.most_alive, self.num_alive)
        weakref.finalize(array, self._gone, array.nbytes)
        return RawTensor("F32", array.shape, array.data.cast("B"), array.nbytes)

    def _gone(self, num_bytes: int) -> None:
        self.num_alive -= num_bytes


def test_no_more_than_a_few_buckets_are_in_memory_whatever_the_shards(tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {f"layer.{number:03d}": (25,) for number in range(120)}
    shapes["embedding"] = (200,)
    digests = set()
    for max_shard_bytes, max_bucket_bytes in ((2**31, 2**31), (2**31, 250), (1000, 250), (1000, 2**31)):
        source = CountedTensors(shapes)
        folder = tmp_path / f"{max_shard_bytes}-{max_bucket_bytes}"
        published = weights_publish(
            folder,
            source,
            job_id=JOB,
            version=1,
            parent_version=0,
            dtype="float32",
            max_shard_bytes=max_shard_bytes,
            max_bucket_bytes=max_bucket_bytes,
        )
        manifest = manifest_read(published.folder)
        weights_verify(published.folder, manifest)
        digests.add((max_shard_bytes, published.manifest_sha256))
        assert sorted(name for bucket in source.buckets for name in bucket) == sorted(shapes)
        if max_bucket_bytes == 250:
            assert max(map(len, source.buckets)) == 2
            # Those that wait to be written, the one that is being fetched, and a tensor larger than a bucket.
            assert source.most_alive <= (MAX_BUFFERED_BUCKETS + 1) * 200 + 800 < 120 * 100 / 4
    assert len(digests) == 2, "buckets do not show in what is written"


def test_digest_is_that_of_the_manifest_and_depends_only_on_the_weights(tmp_path: Path) -> None:
    first = publish(tmp_path / "a", some_arrays())
    again = publish(tmp_path / "b", dict(reversed(some_arrays().items())))
    other = publish(tmp_path / "c", some_arrays(seed=1))
    assert first.manifest_sha256 == manifest_digest((first.folder / MANIFEST_NAME).read_bytes())
    assert first.manifest_sha256 == again.manifest_sha256 != other.manifest_sha256


def test_publishing_again_after_a_crash_replaces_what_was_never_announced(tmp_path: Path) -> None:
    publish(tmp_path, some_arrays(seed=1))
    published = publish(tmp_path, some_arrays(seed=2))
    (shard,) = manifest_read(published.folder).shards
    content = load((published.folder / shard).read_bytes())
    assert np.array_equal(content["norm.weight"], some_arrays(seed=2)["norm.weight"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["3"]


def test_publishing_the_same_weights_again_keeps_the_folder(tmp_path: Path) -> None:
    first = publish(tmp_path, some_arrays())
    inode = first.folder.stat().st_ino
    assert publish(tmp_path, some_arrays()) == first
    assert first.folder.stat().st_ino == inode


def test_what_killed_writers_left_is_cleared(tmp_path: Path) -> None:
    for version in (2, 3, 9):
        (tmp_path / f".writing-{version}").mkdir()
        (tmp_path / f".writing-{version}" / "model-00001.safetensors").write_bytes(b"half of it")
    publish(tmp_path, some_arrays(), version=3)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".writing-9", "3"]


def test_damaged_shard_is_refused(tmp_path: Path) -> None:
    published = publish(tmp_path, some_arrays())
    shard = next(published.folder.glob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(WeightsReadError, match="damaged"):
        weights_verify(published.folder, manifest_read(published.folder))


def test_folder_without_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsReadError, match="no readable manifest"):
        manifest_read(tmp_path)


FULL_DISK = """
import sys, subprocess, pathlib
from uuid import UUID
sys.path[:0] = sys.argv[2:]
from tests.fakes.tensors_in_memory import TensorsInMemory, RawTensor
from seamlessflow_workers.weights.transports.file.sending import WeightsWriteError, weights_publish
root = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", root], check=True)
def publish(version, num_bytes):
    tensor = RawTensor(dtype="U8", shape=(num_bytes,), data=bytes(num_bytes), num_bytes=num_bytes)
    ids = dict(job_id=UUID(int=1), version=version, parent_version=0)
    weights_publish(root, TensorsInMemory(a=tensor), **ids, dtype="float32")
publish(1, 400_000)
try:
    publish(2, 900_000)
except WeightsWriteError as error:
    print(error)
print(sorted(path.name for path in root.iterdir()))
publish(3, 400_000)
"""


def test_full_disk_gives_one_clear_sentence_and_leaves_nothing_half_made(tmp_path: Path) -> None:
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0
    ):
        pytest.skip("mount namespaces are not allowed here")
    result = subprocess.run(
        [*unshare, sys.executable, "-c", FULL_DISK, tmp_path, *sys.path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    sentence, names = result.stdout.splitlines()
    assert sentence == (
        f"cannot write weights of version 2: no space left in {tmp_path}; free space or change ARTIFACT_ROOT"
    )
    assert names == "['1']"


def test_any_other_failed_write_leaves_nothing_half_made_either(tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    versions.mkdir()
    (versions / "3").write_bytes(b"a file where the folder belongs")
    with pytest.raises(WeightsWriteError, match="cannot write weights of version 3"):
        publish(versions, some_arrays())
    assert [entry.name for entry in versions.iterdir()] == ["3"]


class FailingTensors(CountedTensors):
    def tensors(self, names: Sequence[str]) -> dict[str, RawTensor]:
        if len(self.buckets) == 5:
            raise RuntimeError("the other ranks are gone")
        return super().tensors(names)


def test_a_source_that_fails_ends_the_publication_and_leaves_nothing(tmp_path: Path) -> None:
    """Each shard is written by a thread that waits for its next bucket."""
    source = FailingTensors({f"layer.{number:03d}": (25,) for number in range(120)})
    with pytest.raises(RuntimeError, match="the other ranks are gone"):
        weights_publish(
            tmp_path,
            source,
            job_id=JOB,
            version=1,
            parent_version=0,
            dtype="float32",
            max_shard_bytes=1000,
            max_bucket_bytes=250,
        )
    assert not (tmp_path / "1").exists()


def test_a_full_disk_ends_the_publication_however_many_buckets_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("seamlessflow_workers.weights.transports.file.shards.write_durably", full)
    source = CountedTensors({f"layer.{number:03d}": (25,) for number in range(120)})
    with pytest.raises(WeightsWriteError, match="no space left"):
        weights_publish(
            tmp_path, source, job_id=JOB, version=1, parent_version=0, dtype="float32", max_bucket_bytes=100
        )
    assert list(tmp_path.iterdir()) == []

    def fetch(names: Sequence[str], is_own: bool) -> Mapping[str, RawTensor]:
        return source.tensors(names) if is_own else {}

    shards = {f"{number}.safetensors": [f"layer.{number:03d}"] for number in range(120)}
    source.buckets.clear()
    with pytest.raises(OSError, match="No space left"):
        shards_write(
            ShardOrder(str(tmp_path), shards),
            source.layouts(),
            fetch,
            rank=1,
            num_ranks=2,
            gathers_together=True,
        )
    assert len(source.buckets) == 60, "it goes on, because other ranks gather with it"
