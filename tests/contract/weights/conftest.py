"""A trainer's offers, closed when a test ends."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seamlessflow.core.types.transports import WeightTransport
from seamlessflow_workers.weights.offering import WeightOffers
from seamlessflow_workers.weights.transports.sender import SenderSettings
from tests.contract.weights.transport_harness import BUCKET_BYTES, GATHER_S


@pytest.fixture
def open_offers(tmp_path: Path) -> Iterator[Callable[..., WeightOffers]]:
    opened: list[WeightOffers] = []

    def open_(
        transport: WeightTransport,
        on_bucket: Callable[[], None] = lambda: None,
        *,
        gather_s: float = GATHER_S,
        max_engines: int = 64,
    ) -> WeightOffers:
        offers = WeightOffers(
            tmp_path,
            transport,
            SenderSettings(
                gather_s=gather_s,
                max_engines=max_engines,
                bucket_bytes=BUCKET_BYTES,
                on_bucket=on_bucket,
            ),
        )
        opened.append(offers)
        return offers

    yield open_
    for offers in opened:
        offers.close()
