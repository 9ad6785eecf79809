"""Which way is taken, why not, and where a trainer listens."""

import socket
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from seamlessflow.core.job_spec import JobSpec
from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.train.step_engine import ModelLoadError
from seamlessflow_workers.train.weight_offers import offers_open, transport_require
from seamlessflow_workers.weights.offering import WeightOffers
from seamlessflow_workers.weights.offers import OFFER_NAME, EngineLocation, Offer, TransferFailed, offer_of
from seamlessflow_workers.weights.transports.broadcast.sending import BroadcastSender
from seamlessflow_workers.weights.transports.sender import SenderSettings
from seamlessflow_workers.weights.transports.table import TRANSPORTS, transport_choose, transports_opened
from tests.contract.weights.transport_harness import (
    AUTO,
    FILE,
    GLOO,
    IPC,
    NCCL,
    assert_same,
    offer,
    received,
)
from tests.fixtures.trainer_harness import make_spec


@pytest.mark.parametrize("listen_host, others", [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")])
def test_broadcasts_are_listened_for_where_the_machine_listens_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen_host: str, others: str
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_LISTEN_HOST", listen_host)
    monkeypatch.setenv("SEAMLESSFLOW_ADVERTISED_HOST", "localhost")  # however others call it
    opened = offers_open(tmp_path, JobSpec.model_validate(make_spec(num_updates=1, weight_transport="gloo")))
    assert opened is not None
    (sender,) = opened.senders
    assert isinstance(sender, BroadcastSender)
    with closing(opened):
        folder = offer(opened, tmp_path, 1)
        known = offer_of(folder)
        assert known is not None
        assert known.host == "localhost"
        for port in (known.port, sender._store_port):
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
    with closing(WeightOffers(tmp_path, GLOO, SenderSettings(listen_host=everywhere, host=host))) as offers:
        folder = offer(offers, tmp_path, 1)
        with closing(received(folder, GLOO)) as arrival:
            assert (arrival.transport, arrival.fallback) == (GLOO, "")
            assert_same(arrival.folder, folder)


OFFER = Offer(version=1, manifest_sha256="", token="", host_id="here", socket="s", backend=NCCL)


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
    assert transport_choose(AUTO, offered, EngineLocation(host_id=where, device=device)) is expected


@pytest.mark.parametrize(
    "wanted, where, device, reason",
    [
        (NCCL, "here", "cpu", "nccl is not possible: this engine computes on cpu"),
        (IPC, "elsewhere", "cuda", "ipc is not possible: trainer and engine are on different hosts"),
        (GLOO, "here", "cpu", "gloo is not possible: the trainer does not offer it"),
    ],
)
def test_transport_that_cannot_be_says_why(
    wanted: WeightTransport, where: str, device: str, reason: str
) -> None:
    with pytest.raises(TransferFailed) as failed:
        transport_choose(wanted, OFFER, EngineLocation(host_id=where, device=device))
    assert str(failed.value) == reason


def test_trainer_refuses_what_needs_cuda_without_it_and_takes_gloo_only_when_it_is_named() -> None:
    with pytest.raises(
        ModelLoadError, match=r"is nccl, which needs CUDA.*accepted here: auto, file, ipc, gloo"
    ):
        transport_require(NCCL, has_cuda=False)
    transport_require(NCCL, has_cuda=True)
    for transport in (AUTO, FILE, IPC, GLOO):
        transport_require(transport, has_cuda=False)
    assert transports_opened(AUTO, has_cuda=False) == (IPC,)
    assert transports_opened(AUTO, has_cuda=True) == (IPC, NCCL)
    assert transports_opened(GLOO, has_cuda=True) == (GLOO,)


def test_every_transport_has_one_row() -> None:
    assert set(TRANSPORTS) == set(WeightTransport) - {AUTO}
