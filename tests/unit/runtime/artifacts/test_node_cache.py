"""The cache of a host: bounded, shared by its processes, and whole after any of them is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from seamlessflow.runtime.artifacts.node_cache import CacheFull, NodeCache
from seamlessflow.runtime.artifacts.store import PinnedFiles
from tests.fixtures.repository import ROOT

STORE_PATHS = ("j/versions/1", "j/versions/2", "j/versions/3")


class Filler:
    """Writes a bundle of one file and counts how often it was asked to."""

    def __init__(self, num_bytes: int = 100) -> None:
        self.num_bytes = num_bytes
        self.num_calls = 0

    def __call__(self, folder: Path) -> None:
        self.num_calls += 1
        (folder / "shard").write_bytes(b"x" * self.num_bytes)


def pin(cache: NodeCache, store_path: str, fill: Filler, *, digest: str = "d") -> PinnedFiles:
    return cache.pin(store_path, digest=digest, num_bytes=fill.num_bytes, fill=fill)


def test_a_copy_is_made_once_and_used_again(tmp_path: Path) -> None:
    fill = Filler()
    for _ in range(3):
        with pin(NodeCache(tmp_path, max_bytes=1000), STORE_PATHS[0], fill) as pinned:
            assert (pinned.path / "shard").stat().st_size == 100
    assert fill.num_calls == 1


def test_other_contents_of_the_same_name_are_fetched_anew(tmp_path: Path) -> None:
    cache, fill = NodeCache(tmp_path, max_bytes=1000), Filler()
    pin(cache, STORE_PATHS[0], fill).release()
    pin(cache, STORE_PATHS[0], fill, digest="other").release()
    assert (fill.num_calls, cache.num_bytes()) == (2, 100)


def test_the_copy_that_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    cache, fill = NodeCache(tmp_path, max_bytes=250), Filler()
    for number, store_path in enumerate(STORE_PATHS[:2]):
        pin(cache, store_path, fill).release()
        age(cache, store_path, seconds=100 - number)
    pin(cache, STORE_PATHS[0], fill).release()  # used again, so the second is now the older one

    pin(cache, STORE_PATHS[2], fill).release()

    assert [cache.path(store_path).exists() for store_path in STORE_PATHS] == [True, False, True]
    assert cache.num_bytes() == bytes_under(cache.path("")) == 200


def test_what_is_in_use_stays_and_the_bound_holds(tmp_path: Path) -> None:
    cache, fill = NodeCache(tmp_path, max_bytes=250), Filler()
    pinned = [pin(cache, store_path, fill) for store_path in STORE_PATHS[:2]]

    with pytest.raises(CacheFull, match="200 of its 250 bytes are in use; raise SEAMLESSFLOW_CACHE_BYTES"):
        pin(cache, STORE_PATHS[2], fill)
    assert not cache.path(STORE_PATHS[2]).exists()
    assert cache.num_bytes() == 200

    pinned[1].release()
    pin(cache, STORE_PATHS[2], fill).release()
    assert [cache.path(store_path).exists() for store_path in STORE_PATHS] == [True, False, True]


def test_a_bundle_larger_than_the_cache_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CacheFull, match="no space for 100 bytes: 0 of its 50 bytes are in use"):
        pin(NodeCache(tmp_path, max_bytes=50), STORE_PATHS[0], Filler())


def test_of_many_threads_that_want_a_copy_one_makes_it(tmp_path: Path) -> None:
    cache, fill, found = NodeCache(tmp_path, max_bytes=1000), Filler(), []

    def want() -> None:
        with pin(cache, STORE_PATHS[0], fill) as pinned:
            found.append((pinned.path / "shard").stat().st_size)

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found, fill.num_calls) == ([100] * 8, 1)


def test_a_copy_that_fails_on_its_way_leaves_nothing(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, max_bytes=1000)

    def fail(folder: Path) -> None:
        (folder / "shard").write_bytes(b"half")
        raise ConnectionError("the store went away")

    with pytest.raises(ConnectionError):
        cache.pin(STORE_PATHS[0], digest="d", num_bytes=100, fill=fail)
    assert (cache.num_bytes(), bytes_under(tmp_path / "arriving")) == (0, 0)
    assert not cache.path(STORE_PATHS[0]).exists()


KILLED = """
import pathlib, sys, time
from seamlessflow.runtime.artifacts.node_cache import NodeCache
def fill(folder):
    (folder / "shard").write_bytes(b"half")
    print("arriving", flush=True)
    time.sleep(60)
NodeCache(pathlib.Path(sys.argv[1]), max_bytes=1000).pin(sys.argv[2], digest="d", num_bytes=100, fill=fill)
"""


def test_a_process_that_is_killed_while_it_fetches_leaves_nothing_that_anybody_uses(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "platform")}
    command = [sys.executable, "-c", KILLED, str(tmp_path), STORE_PATHS[0]]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "arriving\n"
        alive = NodeCache(tmp_path, max_bytes=1000)
        assert alive.num_bytes() == 100, "room is reserved for what arrives, and its fetcher lives"
        process.send_signal(signal.SIGKILL)

    cache, fill = NodeCache(tmp_path, max_bytes=1000), Filler()
    assert (cache.num_bytes(), bytes_under(tmp_path / "arriving")) == (0, 0)
    with pin(cache, STORE_PATHS[0], fill) as pinned:
        assert (pinned.path / "shard").stat().st_size == 100


def test_a_bundle_that_nobody_kept_goes_after_a_day_and_a_kept_one_stays(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, max_bytes=1000)
    for store_path in STORE_PATHS:
        cache.path(store_path).mkdir(parents=True)
    cache.adopt(STORE_PATHS[0], digest="d", num_bytes=0)
    for store_path in STORE_PATHS[:2]:
        os.utime(cache.path(store_path), (0, time.time() - 25 * 3600))

    NodeCache(tmp_path, max_bytes=1000)

    assert [cache.path(store_path).exists() for store_path in STORE_PATHS] == [True, False, True]


def age(cache: NodeCache, store_path: str, *, seconds: float) -> None:
    (entry,) = (path for path in (cache.folder / "entries").iterdir() if store_path in path.read_text())
    then = time.time() - seconds
    os.utime(entry, (then, then))


def bytes_under(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
