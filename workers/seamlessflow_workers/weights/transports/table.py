"""The transports, one row each: when an engine can use one, and where its two halves are.

It takes the job's setting, the trainer's offer and the engine's location, and returns the transport to open or to use.
Invariant: this module does not import torch. A half that needs torch is imported when it is first used, so a process
that reads files or maps shared memory never loads it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import EngineLocation, Offer, TransferFailed
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.transports.broadcast.receiving import shards_join
from seamlessflow_workers.weights.transports.sender import Offered, Sender, SenderSettings
from seamlessflow_workers.weights.transports.shared_memory import SharedMemorySender, shards_take_over

Problem = Callable[[Offer, EngineLocation], str]  # why an engine cannot use it; empty if it can
Send = Callable[[Offered, SenderSettings], Sender]
Receive = Callable[[Offer, float], SealedShards]  # within this many seconds. Raises TransferFailed

_NOT_OFFERED = "the trainer does not offer it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    problem: Problem
    send: Send | None = None  # None: nothing to open, since the files are always written
    receive: Receive | None = None  # None: engines read the files
    needs_cuda: bool = False  # whether the trainer must compute on CUDA


def _never(_offer: Offer, _here: EngineLocation) -> str:
    return ""


def _unless_on_one_host(offer: Offer, here: EngineLocation) -> str:
    if offer.socket is None:
        return _NOT_OFFERED
    return "" if offer.host_id == here.host_id else "trainer and engine are on different hosts"


def _unless_nccl(offer: Offer, here: EngineLocation) -> str:
    if here.device != "cuda":
        return f"this engine computes on {here.device}"
    return "" if offer.backend is WeightTransport.NCCL else _NOT_OFFERED


def _unless_gloo(offer: Offer, _here: EngineLocation) -> str:
    return "" if offer.backend is WeightTransport.GLOO else _NOT_OFFERED


def _broadcast_send(offered: Offered, settings: SenderSettings, *, backend: WeightTransport) -> Sender:
    from seamlessflow_workers.weights.transports.broadcast.sending import BroadcastSender

    return BroadcastSender(offered, settings, backend=backend)


TRANSPORTS: Mapping[WeightTransport, Transport] = {
    # `file.sending` writes every version and `file.receiving` checks it, whatever else is opened.
    WeightTransport.FILE: Transport(problem=_never),
    WeightTransport.IPC: Transport(
        problem=_unless_on_one_host, send=SharedMemorySender, receive=shards_take_over
    ),
    WeightTransport.NCCL: Transport(
        problem=_unless_nccl,
        send=partial(_broadcast_send, backend=WeightTransport.NCCL),
        receive=partial(shards_join, backend=WeightTransport.NCCL),
        needs_cuda=True,
    ),
    WeightTransport.GLOO: Transport(
        problem=_unless_gloo,
        send=partial(_broadcast_send, backend=WeightTransport.GLOO),
        receive=partial(shards_join, backend=WeightTransport.GLOO),
    ),
}
# The transports of `auto`; gloo only if the job names it.
BEST_FIRST = (WeightTransport.IPC, WeightTransport.NCCL)


def transports_opened(wanted: WeightTransport, *, has_cuda: bool) -> tuple[WeightTransport, ...]:
    """Return the transports that a trainer opens for a job."""
    if wanted is WeightTransport.AUTO:
        return tuple(name for name in BEST_FIRST if has_cuda or not TRANSPORTS[name].needs_cuda)
    return (wanted,)


def transport_choose(wanted: WeightTransport, offer: Offer | None, here: EngineLocation) -> WeightTransport:
    """Return the transport that an engine uses; for `auto` the best that is possible, else the files.

    Raises TransferFailed if the job names one that is not possible.
    """
    if wanted is WeightTransport.FILE:
        return wanted
    if offer is None:
        if wanted is WeightTransport.AUTO:
            return WeightTransport.FILE
        raise TransferFailed(f"no trainer offers this version by {wanted}")
    if wanted is WeightTransport.AUTO:
        possible = (name for name in BEST_FIRST if not TRANSPORTS[name].problem(offer, here))
        return next(possible, WeightTransport.FILE)
    if problem := TRANSPORTS[wanted].problem(offer, here):
        raise TransferFailed(f"{wanted} is not possible: {problem}")
    return wanted
