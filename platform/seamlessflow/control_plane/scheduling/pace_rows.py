"""Reads how fast engines sample while they are full, as the gateways tell it: one statement, whatever their number.

Each gateway tells its part of an engine's tokens and full seconds, so their sums are those of the engine.
"""

import json
from uuid import UUID

from seamlessflow.control_plane.common.database.prepared import prepared_rows
from seamlessflow.core.scheduling.stragglers import Sampled

_PACES = "SELECT g.paces FROM trajectory_gateway g WHERE g.paces IS NOT NULL"


def sampled_load() -> dict[UUID, Sampled]:
    """Return the tokens and full seconds of each engine, by phase."""
    sampled: dict[UUID, Sampled] = {}
    for (paces,) in prepared_rows(_PACES):
        for phase, (num_tokens, full_s) in json.loads(paces).items():
            tokens_before, full_before_s = sampled.get(UUID(phase), (0.0, 0.0))
            sampled[UUID(phase)] = (tokens_before + num_tokens, full_before_s + full_s)
    return sampled
