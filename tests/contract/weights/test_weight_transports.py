"""Every way from a trainer's memory to an engine under one contract: the version's bytes, proven, or its files.

`file` is the record that the others are held to. Trainer and engines that must die are processes of their own; when
they die is said by the trainer's own broadcast, never by a clock.
"""

import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import msgspec
import numpy as np
import pytest
import torch
from msgspec import structs
from safetensors.torch import load_file
from torch import Tensor

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.rollout.transfer.bucket_memory import Bucket, BucketMemory, HostMemory
from seamlessflow_workers.rollout.transfer.buckets import Shards, buckets_receive, shards_tensors
from seamlessflow_workers.rollout.transfer.receiving import (
    MESSAGE_BYTES,
    TIMEOUT_S,
    Arrival,
    trainer_ask,
    weights_receive,
)
from seamlessflow_workers.train.step_engine import ModelLoadError
from seamlessflow_workers.train.weight_offers import MAX_BUCKETS, WeightOffers, backend_for, offers_open
from seamlessflow_workers.weights.images import ShardImages, is_sealed
from seamlessflow_workers.weights.manifest import ADAPTER_CONFIG_NAME
from seamlessflow_workers.weights.offers import (
    OFFER_NAME,
    Buckets,
    CudaHandle,
    Here,
    HostHandle,
    Offer,
    Refusal,
    TransferFailed,
    offer_of,
    transport_choose,
)
from seamlessflow_workers.weights.publish import (
    HeldTensors,
    PublishedWeights,
    RawTensor,
    weights_publish,
)
from tests.integration.trainer_harness import JOB, child_environment, make_spec

FILE, IPC, CUDA_IPC, GLOO, AUTO, NCCL = (
    WeightTransport.FILE,
    WeightTransport.IPC,
    WeightTransport.CUDA_IPC,  # here by the host's memory: all but CUDA's own calls, which tests/gpu makes
    WeightTransport.GLOO,
    WeightTransport.AUTO,
    WeightTransport.NCCL,
)
FROM_MEMORY = (IPC, CUDA_IPC, GLOO)
ON_HOST = (IPC, CUDA_IPC)
SHARD_BYTES = 6000  # the model below takes several
BUCKET_BYTES = 1024  # and each of them several broadcasts
GATHER_S = 0.5
DEADLINE_S = 60.0


def made(seed: int) -> HeldTensors:
    rng = np.random.default_rng(seed)
    held = HeldTensors()
    for number in range(8):
        values = rng.normal(size=(16, 8 * (number + 1))).astype(np.float32)
        held[f"layer.{number}.weight"] = RawTensor(
            dtype="F32", shape=values.shape, data=values.tobytes(), num_bytes=values.nbytes
        )
    return held


def publish(
    versions: Path, version: int, images: ShardImages | None = None, *, adapter: bytes | None = None
) -> PublishedWeights:
    return weights_publish(
        versions,
        made(version),
        job_id=JOB,
        version=version,
        parent_version=version - 1,
        dtype="float32",
        max_shard_bytes=SHARD_BYTES,
        adapter_config=adapter,
        images=images,
    )


def tensors_of(folder: Path) -> dict[str, Tensor]:
    return {name: t for file in sorted(folder.glob("*.safetensors")) for name, t in load_file(file).items()}


def assert_same(folder: Path, expected: Path) -> None:
    ours, theirs = tensors_of(folder), tensors_of(expected)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert {entry.name for entry in folder.iterdir()} == {entry.name for entry in expected.iterdir()}


@pytest.fixture
def open_offers(tmp_path: Path) -> Iterator[Callable[..., WeightOffers]]:
    opened: list[WeightOffers] = []

    def open_(
        transport: WeightTransport,
        on_bucket: Callable[[], None] = lambda: None,
        *,
        gather_s: float = GATHER_S,
        max_engines: int = 64,
        timeout_s: float = TIMEOUT_S,
        memory: BucketMemory | None = None,
    ) -> WeightOffers:
        offers = WeightOffers(
            tmp_path,
            transport,
            memory=(memory or HostMemory()) if transport is CUDA_IPC else None,
            timeout_s=timeout_s,
            gather_s=gather_s,
            max_engines=max_engines,
            bucket_bytes=BUCKET_BYTES,
            on_bucket=on_bucket,
        )
        opened.append(offers)
        return offers

    yield open_
    for offers in opened:
        offers.close()


def offer(offers: WeightOffers, versions: Path, version: int, **options: bytes) -> Path:
    images = offers.images()
    published = publish(versions, version, images, **options)
    offers.offer(images, version=version, manifest_sha256=published.manifest_sha256)
    return published.folder


def received(folder: Path, transport: WeightTransport) -> Arrival:
    if transport is not CUDA_IPC:
        return weights_receive(folder, transport, device="cpu")
    arrival, shards = buckets_receive(folder, HostMemory())
    return replace(arrival, folder=written(folder, shards)) if shards else arrival


def written(folder: Path, shards: Shards) -> Path:
    """What came as tensors, as files beside the rest of the version."""
    copied = folder.with_name(f"{folder.name}-{secrets.token_hex(4)}")
    copytree(folder, copied)
    for name, shard in shards.items():
        (copied / name).write_bytes(shard.numpy().tobytes())
    assert {name: tensor.tolist() for name, tensor in shards_tensors(shards).items()} == {
        name: tensor.tolist() for name, tensor in tensors_of(folder).items()
    }
    return copied


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
    assert transport in (FILE, CUDA_IPC) or not links.exists()


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
    images = offers.images()
    others = publish(tmp_path / "others", 2, images)
    assert others.folder.is_dir()
    with offers.images() as unused:
        published = publish(tmp_path, 1, unused)
    offers.offer(images, version=1, manifest_sha256=published.manifest_sha256)
    arrival = received(published.folder, transport)
    assert arrival.transport is FILE
    checksum = "fingerprint" if transport is CUDA_IPC else "sha256"
    assert f"was damaged on the way: {checksum} " in arrival.fallback
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
    assert arrival.fallback.startswith("the trainer that offered the weights: ")


# Death in the middle.

ENGINE = """
import sys
from pathlib import Path
from seamlessflow.core.types.transports import WeightTransport
from tests.contract.weights.test_weight_transports import received
arrival = received(Path(sys.argv[1]), WeightTransport(sys.argv[2]))
files = {f.name: f.read_bytes() for f in arrival.folder.glob("*.safetensors")}
is_same = files == {f.name: f.read_bytes() for f in Path(sys.argv[1]).glob("*.safetensors")}
print(arrival.transport, "same" if is_same else "other", arrival.fallback, flush=True)
arrival.close()
"""
TRAINER = """
import os, sys
from pathlib import Path
from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.rollout.transfer.bucket_memory import HostMemory
from seamlessflow_workers.train.weight_offers import WeightOffers
from tests.contract.weights.test_weight_transports import BUCKET_BYTES, offer
num_buckets = 0
def die_at_the_third():
    global num_buckets
    num_buckets += 1
    if num_buckets == 3:
        os.kill(os.getpid(), 9)
versions = Path(sys.argv[1])
transport = WeightTransport(sys.argv[2])
memory = HostMemory() if transport is WeightTransport.CUDA_IPC else None
offers = WeightOffers(versions, transport, memory=memory, bucket_bytes=BUCKET_BYTES, on_bucket=die_at_the_third)
print(offer(offers, versions, 1), flush=True)
sys.stdin.read()
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


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
            offers._gather_s = 0.0  # the group of those that are left is not waited for

    # However long each engine takes to start, the first group is of both.
    offers = open_offers(GLOO, kill_at_the_third, gather_s=DEADLINE_S, max_engines=2)
    folder = offer(offers, tmp_path, 1)
    with start(ENGINE, folder, GLOO) as victim, start(ENGINE, folder, GLOO) as survivor:
        victims.append(victim)
        assert survivor.communicate(timeout=DEADLINE_S)[0].split() == [GLOO, "same"]
        victim.communicate()
    assert victim.returncode == -signal.SIGKILL
    assert num_buckets > 3
    assert offers._num_groups == 2
    again = received(folder, GLOO)
    assert again.transport is GLOO
    again.close()


@pytest.mark.parametrize("transport", [CUDA_IPC, GLOO])
def test_trainer_killed_in_the_middle_leaves_the_files(tmp_path: Path, transport: WeightTransport) -> None:
    with start(TRAINER, tmp_path, transport) as trainer:
        assert trainer.stdout is not None
        folder = Path(trainer.stdout.readline().strip())
        arrival = received(folder, transport)
        assert trainer.wait(DEADLINE_S) == -signal.SIGKILL
    assert arrival.transport is FILE
    assert arrival.fallback.startswith("the trainer that offered the weights: ")
    assert_same(arrival.folder, folder)


class CountedMemory(HostMemory):
    """Knows which buckets their owner has not let go of."""

    def __init__(self) -> None:
        self.let_go: queue.SimpleQueue[None] = queue.SimpleQueue()

    def make(self, num_bytes: int) -> Bucket:
        bucket = super().make(num_bytes)
        close: Callable[[], None] = bucket.close

        def close_and_tell() -> None:
            close()
            self.let_go.put(None)

        bucket.close = close_and_tell  # type: ignore[method-assign]
        return bucket


def test_engine_killed_amid_buckets_costs_the_others_nothing_and_its_bucket_is_free_again(
    tmp_path: Path, open_offers: Callable[..., WeightOffers]
) -> None:
    victims: list[subprocess.Popen[str]] = []
    num_buckets = 0

    def kill_at_the_third() -> None:
        nonlocal num_buckets
        num_buckets += 1
        if num_buckets == 3:
            other = received(folder, CUDA_IPC)  # beside it, though it has taken but two buckets
            assert other.transport is CUDA_IPC
            assert_same(other.folder, folder)
            victims[0].kill()
            victims[0].wait(DEADLINE_S)

    memory = CountedMemory()
    folder = offer(open_offers(CUDA_IPC, kill_at_the_third, memory=memory), tmp_path, 1)
    with start(ENGINE, folder, CUDA_IPC) as victim:
        victims.append(victim)
        memory.let_go.get(timeout=DEADLINE_S)  # of the other one
        memory.let_go.get(timeout=DEADLINE_S)
        victim.communicate()
    assert victim.returncode == -signal.SIGKILL
    assert received(folder, CUDA_IPC).transport is CUDA_IPC


def test_engine_that_hangs_amid_buckets_is_left_to_itself(
    tmp_path: Path, open_offers: Callable[..., WeightOffers]
) -> None:
    memory = CountedMemory()
    folder = offer(open_offers(CUDA_IPC, timeout_s=0.1, memory=memory), tmp_path, 1)
    known = offer_of(folder)
    assert known is not None
    with trainer_ask(known, CUDA_IPC, DEADLINE_S):
        memory.let_go.get(timeout=DEADLINE_S)


def test_more_engines_than_there_are_buckets_read_the_files(
    tmp_path: Path, open_offers: Callable[..., WeightOffers]
) -> None:
    folder = offer(open_offers(CUDA_IPC), tmp_path, 1)
    known = offer_of(folder)
    assert known is not None
    with ExitStack() as engines:
        for _ in range(MAX_BUCKETS):
            engine = engines.enter_context(trainer_ask(known, CUDA_IPC, DEADLINE_S))
            assert b"buckets" in engine.recv(MESSAGE_BYTES)
        arrival = received(folder, CUDA_IPC)
    assert arrival.fallback == f"the trainer refused: {MAX_BUCKETS} engines are being served"


class Card(HostMemory):
    """Memory of another name, what it hands out damaged where that is asked for."""

    name = "card 2"
    is_damaging = False

    def map(self, handle: CudaHandle | HostHandle) -> Tensor:
        mapped = super().map(handle)
        return torch.roll(mapped, 8) if self.is_damaging else mapped


def test_engine_on_another_card_reads_the_files_and_says_so(
    tmp_path: Path, open_offers: Callable[..., WeightOffers]
) -> None:
    folder = offer(open_offers(CUDA_IPC, memory=Card()), tmp_path, 1)
    arrival, shards = buckets_receive(folder, HostMemory())
    assert (arrival.transport, shards) == (FILE, {})
    assert arrival.fallback == (
        "cuda_ipc cannot be: the trainer hands out memory of card 2, this engine computes in that of the host"
    )


def test_what_is_damaged_between_two_processes_is_found_in_the_engines_own_copy(
    tmp_path: Path, open_offers: Callable[..., WeightOffers]
) -> None:
    folder = offer(open_offers(CUDA_IPC, memory=Card()), tmp_path, 1)
    damaging = Card()
    damaging.is_damaging = True
    arrival, shards = buckets_receive(folder, damaging)
    assert (arrival.transport, shards) == (FILE, {})
    assert "was damaged on the way: fingerprint " in arrival.fallback
    assert buckets_receive(folder, Card())[0].transport is CUDA_IPC


def test_card_without_room_ends_at_the_files(
    tmp_path: Path, open_offers: Callable[..., WeightOffers], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = offer(open_offers(CUDA_IPC), tmp_path, 1)

    def no_room(_memory: HostMemory, _handle: CudaHandle | HostHandle) -> Tensor:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nand more")

    monkeypatch.setattr(HostMemory, "map", no_room)
    fallback = received(folder, CUDA_IPC).fallback
    assert fallback == "the host: CUDA out of memory. Tried to allocate 2 GiB"


def test_handles_of_other_memory_are_refused() -> None:
    handle = CudaHandle(b"", 1, 0, b"", 0, b"", False)
    with pytest.raises(TransferFailed, match="other memory than the host's"):
        HostMemory().map(handle)
    decoded = msgspec.json.decode(msgspec.json.encode(Buckets(handle, 8, {"a": 1})), type=Buckets | Refusal)
    assert decoded == Buckets(handle, 8, {"a": 1})


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
        assert fallback == "the trainer refused: the token is not that of the offer"


def test_memory_is_sealed_and_anything_else_is_not_taken(tmp_path: Path) -> None:
    with ShardImages() as images:
        assert b"".join(images.tee("shard", [b"one", b"two"])) == b"onetwo"
        assert is_sealed(images.descriptor("shard"))
        assert bytes(images.map("shard")) == b"onetwo"
        with pytest.raises(PermissionError):
            os.pwrite(images.descriptor("shard"), b"x", 0)
    with (tmp_path / "file").open("wb") as file:
        assert not is_sealed(file.fileno())


def test_nonsense_at_the_door_stops_nobody(tmp_path: Path, open_offers: Callable[..., WeightOffers]) -> None:
    for transport in FROM_MEMORY:
        folder = offer(open_offers(transport), tmp_path, 1)
        known = offer_of(folder)
        assert known is not None
        is_on_host = transport in ON_HOST
        kind = socket.SOCK_SEQPACKET if is_on_host else socket.SOCK_STREAM
        family = socket.AF_UNIX if is_on_host else socket.AF_INET
        with socket.socket(family, kind) as stranger:
            stranger.connect(f"\0{known.socket}" if is_on_host else (known.host, known.port))
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        arrival = received(folder, transport)
        assert arrival.transport is transport
        arrival.close()


@pytest.mark.parametrize("listen_host, others", [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")])
def test_broadcasts_are_listened_for_where_the_machine_listens_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen_host: str, others: str
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_LISTEN_HOST", listen_host)
    monkeypatch.setenv("SEAMLESSFLOW_ADVERTISED_HOST", "localhost")  # however others call it
    opened = offers_open(tmp_path, JobSpec.model_validate(make_spec(num_updates=1, weight_transport="gloo")))
    assert opened is not None
    with closing(opened):
        folder = offer(opened, tmp_path, 1)
        known = offer_of(folder)
        assert known is not None
        assert known.host == "localhost"
        for port in (known.port, opened._store_port):
            socket.create_connection((listen_host, port)).close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((others, port))
        (tmp_path / OFFER_NAME).write_bytes(msgspec.json.encode(structs.replace(known, host=listen_host)))
        with closing(received(folder, GLOO)) as arrival:
            assert (arrival.transport, arrival.fallback) == (GLOO, "")


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("everywhere", ["0.0.0.0", *(("::", "::1") if has_ipv6() else ())])
def test_machine_that_listens_to_others_serves_broadcasts_there(tmp_path: Path, everywhere: str) -> None:
    host = "::1" if ":" in everywhere else "127.0.0.2"
    with closing(WeightOffers(tmp_path, GLOO, listen_host=everywhere, host=host)) as offers:
        folder = offer(offers, tmp_path, 1)
        with closing(received(folder, GLOO)) as arrival:
            assert (arrival.transport, arrival.fallback) == (GLOO, "")
            assert_same(arrival.folder, folder)


OFFER = Offer(version=1, manifest_sha256="", token="", place="here", socket="s", backend=NCCL)


@pytest.mark.parametrize(
    "offered, where, device, expected",
    [
        (OFFER, "here", "cpu", IPC),
        (OFFER, "here", "cuda", IPC),
        (OFFER, "elsewhere", "cuda", NCCL),
        (OFFER, "elsewhere", "cpu", FILE),
        (structs.replace(OFFER, backend=GLOO), "elsewhere", "cpu", FILE),
        (structs.replace(OFFER, socket=None), "here", "cuda", NCCL),
        (None, "here", "cuda", FILE),
    ],
)
def test_auto_takes_the_best_that_can_be(
    offered: Offer | None, where: str, device: str, expected: WeightTransport
) -> None:
    assert transport_choose(AUTO, offered, Here(place=where, device=device)) is expected


@pytest.mark.parametrize(
    "wanted, where, device, reason",
    [
        (NCCL, "here", "cpu", "nccl cannot be: this engine computes on cpu"),
        (IPC, "elsewhere", "cuda", "ipc cannot be: trainer and engine are on different hosts"),
        (CUDA_IPC, "here", "cuda", "cuda_ipc cannot be: the trainer does not offer it"),
        (GLOO, "here", "cpu", "gloo cannot be: the trainer does not offer it"),
    ],
)
def test_transport_that_cannot_be_says_why(
    wanted: WeightTransport, where: str, device: str, reason: str
) -> None:
    with pytest.raises(TransferFailed) as failed:
        transport_choose(wanted, OFFER, Here(place=where, device=device))
    assert str(failed.value) == reason


def test_trainer_refuses_what_needs_cuda_without_it_and_takes_gloo_only_when_it_is_named() -> None:
    for transport in (NCCL, CUDA_IPC):
        refusal = f"is {transport}, which needs CUDA.*accepted here: auto, file, ipc, gloo"
        with pytest.raises(ModelLoadError, match=refusal):
            backend_for(transport, has_cuda=False)
    assert backend_for(CUDA_IPC, has_cuda=True) is None
    assert backend_for(AUTO, has_cuda=False) is None
    assert backend_for(AUTO, has_cuda=True) is NCCL
    assert backend_for(GLOO, has_cuda=False) is GLOO
    assert backend_for(IPC, has_cuda=True) is None
