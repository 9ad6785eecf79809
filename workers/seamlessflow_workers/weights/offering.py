"""Offers the version just published from this trainer's memory, while the trainer goes on with the next one.

It takes the shards as they were written, in sealed memory, and serves them to engines by the transports that the job
opens. The next version replaces the one on offer. A failure costs one transfer at most: engines that could not be
served read the files.
"""

from pathlib import Path

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offers import Offer, host_id, offer_withdraw, offer_write
from seamlessflow_workers.weights.sealed_shards import SealedShards
from seamlessflow_workers.weights.transports.sender import Offered, Sender, SenderSettings
from seamlessflow_workers.weights.transports.table import TRANSPORTS, transports_opened


class WeightOffers:
    """One per trainer; its threads end with the trainer. Call `offer` and `close` from one thread."""

    def __init__(
        self,
        versions: Path,
        transport: WeightTransport,
        settings: SenderSettings | None = None,
        *,
        has_cuda: bool = False,
    ) -> None:
        """`has_cuda`: whether this trainer computes on a GPU, which decides what `auto` opens."""
        self._versions = versions
        self._offered = Offered()
        offer_withdraw(versions)  # left by a trainer that is gone
        self.senders: tuple[Sender, ...] = tuple(
            send(self._offered, settings or SenderSettings())
            for name in transports_opened(transport, has_cuda=has_cuda)
            if (send := TRANSPORTS[name].send) is not None
        )

    def shards(self) -> SealedShards:
        """Return an empty container that keeps the shards of a version while they are written."""
        return SealedShards()

    def offer(self, shards: SealedShards, *, version: int, manifest_sha256: str) -> None:
        """Offer this version from now on, instead of the previous one."""
        self._offered.replace(shards, version=version)
        offer = Offer(
            version=version, manifest_sha256=manifest_sha256, token=self._offered.token, host_id=host_id()
        )
        for sender in self.senders:
            offer = sender.advertise(offer)
        offer_write(self._versions, offer)

    def close(self) -> None:
        offer_withdraw(self._versions)
        for sender in self.senders:
            sender.close()
        self._offered.close()
