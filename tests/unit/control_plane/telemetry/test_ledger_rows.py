"""Whatever a machine reports, the rows of its ledger touch, never overlap, and end before the server's clock does."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.control_plane.telemetry.services.ledger import MAX_AHEAD, Boot, _row, _touching
from seamlessflow.core.protocol.worker import Interval
from seamlessflow.core.types.ledger import LedgerState

START = datetime(2026, 1, 1, tzinfo=UTC)
BOOT = Boot(machine_id=uuid4(), boot_id=uuid4(), anchor_at=START)
MOMENTS = st.floats(0.0, 2000.0, allow_nan=False)


@given(st.lists(st.tuples(MOMENTS, MOMENTS)), st.none() | MOMENTS, MOMENTS)
def test_the_rows_of_a_machine_touch_and_never_overlap(
    edges: list[tuple[float, float]], end_s: float | None, now_s: float
) -> None:
    told = [
        Interval(seq=seq, state=LedgerState.SERVING, start_s=start, end_s=end)
        for seq, (start, end) in enumerate(edges)
    ]
    end_at = None if end_s is None else BOOT.moment(end_s)
    until = BOOT.moment(now_s) + MAX_AHEAD

    rows = list(_touching((_row(BOOT, item) for item in told), end_at=end_at, until=until))

    begins = [row.started_at for row in rows]
    ends = [row.ended_at for row in rows]
    assert all(end > begin for begin, end in zip(begins, ends, strict=True))
    assert begins[1:] == ends[:-1]
    assert all(end <= until for end in ends)
    assert end_at is None or not rows or begins[0] == end_at
    assert timedelta(0) <= sum((end - begin for begin, end in zip(begins, ends, strict=True)), timedelta(0))
