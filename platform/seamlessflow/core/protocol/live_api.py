"""The live socket, as `api_schema/live.openapi.json` publishes it: each kind of frame and each type of row.

Defines `LIVE` from the types of `core.protocol.live_rows`. Invariant: every row that a frame can contain is published,
because frames are published whole.
"""

from seamlessflow.core.protocol.live_rows import FRAME_VERSION, FRAMES, Frame
from seamlessflow.core.protocol.openapi import Contract

LIVE = Contract(
    title="SeamlessFlow live frames",
    version=str(FRAME_VERSION),
    description="The messages of the WebSocket `/ws/live`. A message has one frame per line. The client's first "
    'message is `{"subscribe": ["jobs", "job:<id>", "group:<id>", "machines"], "since": {topic: [epoch, seq]}}`, with '
    "`token` if there is no browser session. A subscription begins with a snapshot; deltas follow, numbered without "
    "gaps. A row replaces the row with the same key, so applying a delta twice changes nothing.",
    operations=[],
    schemes={},
    types=[Frame, *FRAMES],
)
