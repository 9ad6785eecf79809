"""Which checkpoints fit the copy of the database: none with batches that it does not know, and none
that lacks any."""

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.backup.checkpoints import JobRecord, checkpoint_fault, fitting_checkpoints

BATCHES = st.integers(min_value=0, max_value=30)


@st.composite
def records(draw: st.DrawFn) -> JobRecord:
    """Deleted batches were applied, and published batches were handed out."""
    handed_out = draw(BATCHES)
    published = draw(st.integers(0, handed_out))
    return JobRecord(published, draw(st.integers(0, published)), handed_out)


@given(records(), st.sets(st.integers(min_value=1, max_value=40)))
def test_every_batch_after_a_fitting_checkpoint_can_be_applied_again(
    record: JobRecord, on_disk: set[int]
) -> None:
    has_bytes = set(range(record.forgotten + 1, record.handed_out + 1))
    for batch in fitting_checkpoints(record, on_disk):
        assert batch <= record.handed_out, "its weights hold a batch that nobody knows"
        assert set(range(batch + 1, record.published + 1)) <= has_bytes, (
            "a batch behind it cannot be had again"
        )
        assert batch <= record.published + 1, "its next publication would be out of order"


@given(records(), st.sets(st.integers(min_value=1, max_value=40)))
def test_an_error_is_reported_exactly_if_the_job_could_not_continue(
    record: JobRecord, on_disk: set[int]
) -> None:
    can_begin_anew = record.forgotten == 0
    fault = checkpoint_fault(record, on_disk)
    assert bool(fault) == (not can_begin_anew and not fitting_checkpoints(record, on_disk))


def test_a_checkpoint_ahead_of_the_record_does_not_fit() -> None:
    record = JobRecord(published=6, forgotten=3, handed_out=7)
    assert fitting_checkpoints(record, {2, 3, 6, 7, 8, 9}) == [3, 6, 7]
    assert fitting_checkpoints(JobRecord(6, 3, 6), {6, 7}) == [6]
    assert "there is no checkpoint of batch 3 to 7 (found: 9, 12)" in checkpoint_fault(record, {9, 12})
