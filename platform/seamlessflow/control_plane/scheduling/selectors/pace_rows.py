"""Reads how fast engines sample while they are full, as the gateways report it: one statement, whatever their number.

Each gateway reports its own count of an engine's tokens and full seconds, so their sums are those of the engine.
"""

import json
from uuid import UUID

from seamlessflow.control_plane.common.database.prepared import prepared_rows
from seamlessflow.core.placement.engine_key import EngineKey
from seamlessflow.core.scheduling.blame.stragglers import Sampled

_PACES = "SELECT g.paces FROM trajectory_gateway g WHERE g.paces IS NOT NULL"


def sampled_load() -> dict[UUID, Sampled]:
    """Return the tokens and full seconds of the engines of each phase, all of them and all gateways together."""
    sampled: dict[UUID, Sampled] = {}
    for (paces,) in prepared_rows(_PACES):
        for key, (num_tokens, full_s) in json.loads(paces).items():
            phase_id = EngineKey.parse(key).phase_id
            tokens_before, full_before_s = sampled.get(phase_id, (0.0, 0.0))
            sampled[phase_id] = (tokens_before + num_tokens, full_before_s + full_s)
    return sampled
