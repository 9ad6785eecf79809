"""The order for a keeper: plain values, because it reads them from its command line."""

import json
from collections.abc import Sequence
from typing import NamedTuple


class Order(NamedTuple):
    """`exposed`: folders of the platform's own Python, which the agents' user must be able to reach."""

    parent_pid: int
    cores: Sequence[int]
    user_id: int | None = None  # None: the supervisor's user
    exposed: Sequence[str] = ()

    def encode(self) -> str:
        return json.dumps(self._asdict())
