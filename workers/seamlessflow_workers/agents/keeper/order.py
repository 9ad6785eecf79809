"""The order for a keeper: plain values, because it reads them from its command line."""

import json
from collections.abc import Sequence
from typing import NamedTuple


class Order(NamedTuple):
    """`exposed`: folders of the platform's own Python, which the agents' user must be able to reach.

    `kept`: the files that the session was given in folders that become private; `private_mb` is the size of each of
    these.
    """

    parent_pid: int
    cores: Sequence[int]
    user_id: int | None = None  # None: the supervisor's user
    exposed: Sequence[str] = ()
    kept: Sequence[str] = ()
    private_mb: int = 0

    def encode(self) -> str:
        return json.dumps(self._asdict())
