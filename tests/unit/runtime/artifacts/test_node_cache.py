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
from seamlessflow.runtime.artifacts.store import Held
from tests.fixtures.repository import ROOT

PLACES = ("j/versions/1", "j/versions/2", "j/versions/3")


class Filler:
    """Writes a bundle of one file and counts how often it was asked to."""

    def __init__(self, num_bytes: int = 100) -> None:
        self.num_bytes = num_bytes
        self.num_calls = 0

    def __call__(self, folder: Path) -> None:
        self.num_calls += 1
        (folder / "shard").write_bytes(b"x" * self.num_bytes)


def hold(cache: NodeCache, place: str, fill: Filler, *, digest: str = "d") -> Held:
    return cache.hold(place, digest=digest, num_bytes=fill.num_bytes, fill=fill)


def test_a_copy_is_made_once_and_used_again(tmp_path: Path) -> None:
    fill = Filler()
    for _ in range(3):
        with hold(NodeCache(tmp_path, max_bytes=1000), PLACES[0], fill) as held:
            assert (held.path / "shard").stat().st_size == 100
    assert fill.num_calls == 1


def test_other_contents_of_the_same_name_are_fetched_anew(tmp_path: Path) -> None:
    cache, fill = NodeCache(tmp_path, max_bytes=1000), Filler()
    hold(cache, PLACES[0], fill).release()
    hold(cache, PLACES[0], fill, digest="other").release()
    assert (fill.num_calls, cache.num_bytes()) == (2, 100)


def test_the_copy_that_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    cache, fill = NodeCache(tmp_path, max_bytes=250), Filler()
    for number, place in enumerate(PLACES[:2]):
        hold(cache, place, fill).release()
        age(cache, place, seconds=100 - number)
    hold(cache, PLACES[0], fill).release()  # used again, so the second is now the older one

    hold(cache, PLACES[2], fill).release()

    assert [cache.path(place).exists() for place in PLACES] == [True, False, True]
    assert cache.num_bytes() == bytes_under(cache.path("")) == 200


def test_what_is_in_use_stays_and_the_bound_holds(tmp_path: Path) -> None:
    cache, fill = NodeCache(tmp_path, max_bytes=250), Filler()
    held = [hold(cache, place, fill) for place in PLACES[:2]]

    with pytest.raises(CacheFull, match="200 of its 250 bytes are in use; raise SEAMLESSFLOW_CACHE_BYTES"):
        hold(cache, PLACES[2], fill)
    assert not cache.path(PLACES[2]).exists()
    assert cache.num_bytes() == 200

    held[1].release()
    hold(cache, PLACES[2], fill).release()
    assert [cache.path(place).exists() for place in PLACES] == [True, False, True]


def test_a_bundle_larger_than_the_cache_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CacheFull, match="no room for 100 bytes: 0 of its 50 bytes are in use"):
        hold(NodeCache(tmp_path, max_bytes=50), PLACES[0], Filler())


def test_of_many_threads_that_want_a_copy_one_makes_it(tmp_path: Path) -> None:
    cache, fill, found = NodeCache(tmp_path, max_bytes=1000), Filler(), []

    def want() -> None:
        with hold(cache, PLACES[0], fill) as held:
            found.append((held.path / "shard").stat().st_size)

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
        cache.hold(PLACES[0], digest="d", num_bytes=100, fill=fail)
    assert (cache.num_bytes(), bytes_under(tmp_path / "arriving")) == (0, 0)
    assert not cache.path(PLACES[0]).exists()


KILLED = """
import pathlib, sys, time
from seamlessflow.runtime.artifacts.node_cache import NodeCache
def fill(folder):
    (folder / "shard").write_bytes(b"half")
    print("arriving", flush=True)
    time.sleep(60)
NodeCache(pathlib.Path(sys.argv[1]), max_bytes=1000).hold(sys.argv[2], digest="d", num_bytes=100, fill=fill)
"""


def test_a_process_that_is_killed_while_it_fetches_leaves_nothing_that_anybody_uses(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "platform")}
    command = [sys.executable, "-c", KILLED, str(tmp_path), PLACES[0]]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "arriving\n"
        alive = NodeCache(tmp_path, max_bytes=1000)
        assert alive.num_bytes() == 100, "room is reserved for what arrives, and its fetcher lives"
        process.send_signal(signal.SIGKILL)

    cache, fill = NodeCache(tmp_path, max_bytes=1000), Filler()
    assert (cache.num_bytes(), bytes_under(tmp_path / "arriving")) == (0, 0)
    with hold(cache, PLACES[0], fill) as held:
        assert (held.path / "shard").stat().st_size == 100


def test_a_bundle_that_nobody_kept_goes_after_a_day_and_a_kept_one_stays(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, max_bytes=1000)
    for place in PLACES:
        cache.path(place).mkdir(parents=True)
    cache.adopt(PLACES[0], digest="d", num_bytes=0)
    for place in PLACES[:2]:
        os.utime(cache.path(place), (0, time.time() - 25 * 3600))

    NodeCache(tmp_path, max_bytes=1000)

    assert [cache.path(place).exists() for place in PLACES] == [True, False, True]


def age(cache: NodeCache, place: str, *, seconds: float) -> None:
    (entry,) = (path for path in (cache.folder / "entries").iterdir() if place in path.read_text())
    then = time.time() - seconds
    os.utime(entry, (then, then))


def bytes_under(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
