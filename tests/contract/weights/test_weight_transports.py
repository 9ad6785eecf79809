"""Every way from a trainer's memory to an engine under one contract: the version's bytes, proven, or its files.

`file` is the record that the others are held to. Trainer and engines that must die are processes of their own; when
they die is said by the trainer's own broadcast, never by a clock.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.manifest import ADAPTER_CONFIG_NAME
from seamlessflow_workers.weights.offering import WeightOffers
from seamlessflow_workers.weights.offers import OFFER_NAME, offer_of
from seamlessflow_workers.weights.sealed_shards import SealedShards, is_sealed
from seamlessflow_workers.weights.transports.broadcast.group import Seat
from seamlessflow_workers.weights.transports.broadcast.receiving import NUM_TRIES
from seamlessflow_workers.weights.transports.broadcast.sending import BroadcastSender
from tests.contract.weights.transport_harness import (
    BUCKET_BYTES,
    DEADLINE_S,
    ENGINE,
    FILE,
    FROM_MEMORY,
    GLOO,
    IPC,
    TRAINER,
    assert_same,
    offer,
    publish,
    received,
    start,
)

# What every transport does.


@pytest.mark.parametrize("transport", [FILE, *FROM_MEMORY])
def test_version_comes_bit_by_bit_in_its_shards(
    tmp_path: Path, open_offers: Callable[..., WeightOffers], transport: WeightTransport
) -> None:
    folder = offer(open_offers(transport if transport is not FILE else IPC), tmp_path, 1)
    arrival = received(folder, transport)
    assert (arrival.transport, arrival.fallback) == (transport, "")
    assert len(list(folder.glob("*.safetensors"))) > 2
    assert_same(arrival.folder, folder)
    if transport is not FILE:
        assert arrival.folder != folder
        assert arrival.num_bytes == sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    links = arrival.folder
    arrival.close()
    assert folder.is_dir()
    assert transport is FILE or not links.exists()


@pytest.mark.parametrize("transport", FROM_MEMORY)
def test_adapter_comes_with_its_configuration(
    tmp_path: Path, open_offers: Callable[..., WeightOffers], transport: WeightTransport
) -> None:
    folder = offer(open_offers(transport), tmp_path, 1, adapter=b'{"r": 4}')
    arrival = received(folder, transport)
    assert arrival.transport is transport
    assert_same(arrival.folder, folder)
    assert (arrival.folder / ADAPTER_CONFIG_NAME).read_bytes() == b'{"r": 4}'
    arrival.close()


@pytest.mark.parametrize("transport", FROM_MEMORY)
def test_engines_that_ask_together_are_all_served_and_one_that_comes_later_too(
    tmp_path: Path, open_offers: Callable[..., WeightOffers], transport: WeightTransport
) -> None:
    folder = offer(open_offers(transport), tmp_path, 1)
    with ThreadPoolExecutor(3) as engines:
        arrivals = list(engines.map(lambda _: received(folder, transport), range(3)))
    arrivals.append(received(folder, transport))
    for arrival in arrivals:
        assert (arrival.transport, arrival.fallback) == (transport, "")
        assert_same(arrival.folder, folder)
        arrival.close()


@pytest.mark.parametrize("transport", FROM_MEMORY)
def test_engine_that_missed_a_version_reads_the_file_of_the_one_it_was_told(
    tmp_path: Path, open_offers: Callable[..., WeightOffers], transport: WeightTransport
) -> None:
    offers = open_offers(transport)
    first, second = (offer(offers, tmp_path, version) for version in (1, 2))
    late = received(first, transport)
    assert late.transport is FILE
    assert late.folder == first
    assert late.fallback == f"no trainer offers this version by {transport}"
    newest = received(second, transport)
    assert newest.transport is transport
    newest.close()


@pytest.mark.parametrize("transport", FROM_MEMORY)
def test_damaged_weights_are_refused_by_the_manifests_checksum(
    tmp_path: Path, open_offers: Callable[..., WeightOffers], transport: WeightTransport
) -> None:
    offers = open_offers(transport)
    shards = offers.shards()
    others = publish(tmp_path / "others", 2, shards)
    assert others.folder.is_dir()
    with offers.shards() as unused:
        published = publish(tmp_path, 1, unused)
    offers.offer(shards, version=1, manifest_sha256=published.manifest_sha256)
    arrival = received(published.folder, transport)
    assert arrival.transport is FILE
    assert "was damaged on the way: its sha256 is " in arrival.fallback
    assert_same(arrival.folder, published.folder)


@pytest.mark.parametrize("transport", FROM_MEMORY)
def test_without_its_trainer_a_version_is_read_from_its_files(
    tmp_path: Path, open_offers: Callable[..., WeightOffers], transport: WeightTransport
) -> None:
    offers = open_offers(transport)
    folder = offer(offers, tmp_path, 1)
    stale = (tmp_path / OFFER_NAME).read_bytes()
    offers.close()
    assert received(folder, transport).fallback == f"no trainer offers this version by {transport}"
    (tmp_path / OFFER_NAME).write_bytes(stale)  # as a kill leaves it
    arrival = received(folder, transport)
    assert arrival.transport is FILE
    assert arrival.fallback.startswith("the transfer from the trainer that offered the weights failed: ")


# Death in the middle.


def test_engine_killed_in_mid_broadcast_leaves_the_others_served(
    tmp_path: Path, open_offers: Callable[..., WeightOffers]
) -> None:
    victims: list[subprocess.Popen[str]] = []
    num_buckets = 0

    def kill_at_the_third() -> None:
        nonlocal num_buckets
        num_buckets += 1
        if num_buckets == 3:
            victims[0].send_signal(signal.SIGKILL)
            victims[0].wait(DEADLINE_S)
            broadcasting._gather_s = 0.0  # the group of those that are left is not waited for

    # However long each engine takes to start, the first group is of both.
    offers = open_offers(GLOO, kill_at_the_third, gather_s=DEADLINE_S, max_engines=2)
    (sender,) = offers.senders
    assert isinstance(sender, BroadcastSender)
    broadcasting = sender
    folder = offer(offers, tmp_path, 1)
    with start(ENGINE, folder, GLOO) as victim, start(ENGINE, folder, GLOO) as survivor:
        victims.append(victim)
        assert survivor.communicate(timeout=DEADLINE_S)[0].split() == [GLOO, "same"]
        victim.communicate()
    assert victim.returncode == -signal.SIGKILL
    assert num_buckets > 3
    assert sender._num_groups == 2
    again = received(folder, GLOO)
    assert again.transport is GLOO
    again.close()


def test_trainer_killed_in_the_middle_leaves_the_files(tmp_path: Path) -> None:
    with start(TRAINER, tmp_path, GLOO) as trainer:
        assert trainer.stdout is not None
        folder = Path(trainer.stdout.readline().strip())
        arrival = received(folder, GLOO)
        assert trainer.wait(DEADLINE_S) == -signal.SIGKILL
    assert arrival.transport is FILE
    assert arrival.fallback.startswith("the transfer from the trainer that offered the weights failed: ")
    assert_same(arrival.folder, folder)


def test_trainer_that_leaves_after_it_gave_the_seats_is_not_waited_for(
    tmp_path: Path, open_offers: Callable[..., WeightOffers]
) -> None:
    folder = offer(open_offers(GLOO), tmp_path, 1)
    known = offer_of(folder)
    assert known is not None
    with socket.create_server(("127.0.0.1", 0)) as door, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # held, and nobody listens
        seat = Seat(1, 2, closed.getsockname()[1], "group-1", BUCKET_BYTES, {})
        gone = structs.replace(known, port=door.getsockname()[1])
        (tmp_path / OFFER_NAME).write_bytes(msgspec.json.encode(gone))
        with ThreadPoolExecutor(1) as trainer:
            seats_given = trainer.submit(_give_seats, door, seat)
            arrival = received(folder, GLOO)
            assert seats_given.result() == NUM_TRIES
    assert arrival.transport is FILE
    # Refused at once; the client of a store would have tried until its time was over.
    assert (
        arrival.fallback
        == "the transfer from the trainer that offered the weights failed: [Errno 111] Connection refused"
    )


def _give_seats(door: socket.socket, seat: Seat) -> int:
    num_given = 0
    for _ in range(NUM_TRIES):
        connection, _address = door.accept()
        with connection, connection.makefile("rb") as lines:
            assert lines.readline()
            connection.sendall(msgspec.json.encode(seat) + b"\n")
            num_given += 1
    return num_given


def test_memory_that_was_handed_over_outlives_its_trainer(tmp_path: Path) -> None:
    with start(TRAINER, tmp_path, IPC) as trainer:
        assert trainer.stdout is not None
        folder = Path(trainer.stdout.readline().strip())
        arrival = received(folder, IPC)
        trainer.kill()
    assert arrival.transport is IPC
    assert_same(arrival.folder, folder)
    arrival.close()


# Who may have what, and which way is taken.


def test_stranger_is_refused(tmp_path: Path, open_offers: Callable[..., WeightOffers]) -> None:
    for transport in FROM_MEMORY:
        folder = offer(open_offers(transport), tmp_path, 1)
        known = offer_of(folder)
        assert known is not None
        assert (tmp_path / OFFER_NAME).stat().st_mode & 0o077 == 0
        forged = structs.replace(known, token="guessed")
        (tmp_path / OFFER_NAME).write_bytes(msgspec.json.encode(forged))
        fallback = received(folder, transport).fallback
        assert fallback == "the trainer refused: the token is not the one in the offer"


def test_memory_is_sealed_and_anything_else_is_not_taken(tmp_path: Path) -> None:
    with SealedShards() as shards:
        assert b"".join(shards.tee("shard", [b"one", b"two"])) == b"onetwo"
        assert is_sealed(shards.descriptor("shard"))
        assert bytes(shards.map("shard")) == b"onetwo"
        with pytest.raises(PermissionError):
            os.pwrite(shards.descriptor("shard"), b"x", 0)
    with (tmp_path / "file").open("wb") as file:
        assert not is_sealed(file.fileno())


def test_nonsense_at_the_door_stops_nobody(tmp_path: Path, open_offers: Callable[..., WeightOffers]) -> None:
    for transport in FROM_MEMORY:
        folder = offer(open_offers(transport), tmp_path, 1)
        known = offer_of(folder)
        assert known is not None
        is_on_host = transport is IPC
        kind = socket.SOCK_SEQPACKET if is_on_host else socket.SOCK_STREAM
        family = socket.AF_UNIX if is_on_host else socket.AF_INET
        with socket.socket(family, kind) as stranger:
            stranger.connect(f"\0{known.socket}" if is_on_host else (known.host, known.port))
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        arrival = received(folder, transport)
        assert arrival.transport is transport
        arrival.close()
