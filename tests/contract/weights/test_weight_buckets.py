"""Shards through a bucket of memory that both sides share: who dies, hangs, comes from elsewhere or has no room.

What it does as every other transport is in `test_weight_transports`.
"""

import queue
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor

from seamlessflow_workers.weights.offering import WeightOffers
from seamlessflow_workers.weights.offers import Refusal, TransferFailed, offer_of
from seamlessflow_workers.weights.transports.cuda_ipc.memory import (
    Bucket,
    Buckets,
    CudaHandle,
    CudaMemory,
    HostHandle,
    HostMemory,
    _CudaBucket,
)
from seamlessflow_workers.weights.transports.cuda_ipc.receiving import buckets_receive
from seamlessflow_workers.weights.transports.cuda_ipc.sending import MAX_BUCKETS
from seamlessflow_workers.weights.transports.host_socket import MESSAGE_BYTES, trainer_ask
from tests.contract.weights.transport_harness import (
    CUDA_IPC,
    DEADLINE_S,
    ENGINE,
    FILE,
    assert_same,
    offer,
    received,
    start,
)


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
    assert arrival.fallback == f"the trainer refused: {MAX_BUCKETS} engines are being served already"


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
        "cuda_ipc is not possible: the trainer shares memory of card 2, but this engine computes in that of the host"
    )


def test_what_is_damaged_between_two_processes_is_found_in_the_engines_own_copy(
    tmp_path: Path, open_offers: Callable[..., WeightOffers]
) -> None:
    folder = offer(open_offers(CUDA_IPC, memory=Card()), tmp_path, 1)
    damaging = Card()
    damaging.is_damaging = True
    arrival, shards = buckets_receive(folder, damaging)
    assert (arrival.transport, shards) == (FILE, {})
    assert "was damaged on the way: its fingerprint is " in arrival.fallback
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
    with pytest.raises(TransferFailed, match="memory that is not the host's"):
        HostMemory().map(handle)
    decoded = msgspec.json.decode(msgspec.json.encode(Buckets(handle, 8, {"a": 1})), type=Buckets | Refusal)
    assert decoded == Buckets(handle, 8, {"a": 1})


def test_what_torch_exports_of_a_storage_comes_to_its_other_end_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its two calls stand in for themselves, as `torch.multiprocessing` pairs them: the device is the receiver's."""
    exported = (7, b"\x00memory", 64, 512, b"/counter", 3, b"\xffevent", True)
    mapped: list[tuple[object, ...]] = []

    def new_shared(*given: object) -> torch.UntypedStorage:
        mapped.append(given)
        return torch.UntypedStorage(64)

    monkeypatch.setattr(torch.UntypedStorage, "_share_cuda_", lambda _storage: exported)
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared_cuda", new_shared)
    handle = _CudaBucket(torch.zeros(64, dtype=torch.uint8)).handle
    sent = msgspec.json.encode(Buckets(handle, 8, {"a": 1}))
    memory = CudaMemory.__new__(CudaMemory)  # without a card there is no stream for it
    memory.device = torch.device("cpu", 5)
    assert len(memory.map(msgspec.json.decode(sent, type=Buckets).handle)) == 64
    assert mapped == [(5, *exported[1:])]
