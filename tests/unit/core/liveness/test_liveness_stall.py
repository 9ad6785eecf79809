"""When a silent party is suspected: never early, never for silence alone, always in the end."""

from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.core.liveness.stall import (
    LEAST_ALLOWED_S,
    LONGEST_TICK_S,
    MOST_ALLOWED_S,
    PROBE_EVERY_S,
    WINDOW_S,
    ProbeAnswer,
    StallWatch,
    silence_allowed_s,
)

TICK_S = 0.25
seconds = st.floats(0.0, 1000.0)


def listen(watch: StallWatch, duration_s: float, answer: ProbeAnswer | None = None) -> bool:
    """Tick for this long and probe when asked to; return whether the party was stalled at the
    end."""
    for _ in range(round(duration_s / TICK_S)):
        watch.listened(TICK_S)
        if watch.wants_probe() and answer is not None:
            watch.probed(answer)
    return watch.is_stalled()


def test_a_party_that_answers_no_probe_is_suspected_after_the_minimum_silence() -> None:
    watch = StallWatch()
    assert not listen(watch, LEAST_ALLOWED_S - TICK_S, ProbeAnswer.MUTE)
    assert listen(watch, TICK_S, ProbeAnswer.MUTE)


def test_a_party_that_answers_but_does_nothing_is_suspected_as_well() -> None:
    assert listen(StallWatch(), LEAST_ALLOWED_S + PROBE_EVERY_S, ProbeAnswer.SAME)


def test_nobody_is_suspected_for_silence_alone() -> None:
    assert not listen(StallWatch(), MOST_ALLOWED_S * 2)


def test_a_party_that_works_silently_is_not_suspected() -> None:
    assert not listen(StallWatch(), 600.0, ProbeAnswer.MOVED)


def test_a_slow_party_that_answers_probes_earns_patience_and_a_stopped_one_does_not() -> None:
    slow, stopped = StallWatch(), StallWatch()
    for watch, answer in ((slow, ProbeAnswer.SAME), (stopped, ProbeAnswer.MUTE)):
        listen(watch, 4.0, answer)
        watch.progressed()
    assert not listen(slow, 12.0, ProbeAnswer.SAME)
    assert listen(stopped, LEAST_ALLOWED_S, ProbeAnswer.MUTE)


def test_a_wrong_suspicion_is_not_repeated_at_once_and_is_forgotten_later() -> None:
    watch = StallWatch()
    assert listen(watch, LEAST_ALLOWED_S, ProbeAnswer.MUTE)
    watch.suspected()
    assert not listen(watch, 2 * LEAST_ALLOWED_S - TICK_S, ProbeAnswer.MUTE)
    watch.progressed()
    listen(watch, 2 * WINDOW_S, ProbeAnswer.MOVED)
    assert listen(watch, LEAST_ALLOWED_S, ProbeAnswer.MUTE)


def test_a_listener_that_was_stopped_itself_blames_nobody() -> None:
    watch = StallWatch()
    listen(watch, 1.5, ProbeAnswer.MUTE)
    watch.listened(3600.0)
    assert watch.silence_s <= 1.5 + LONGEST_TICK_S
    assert not watch.is_stalled()


def test_a_long_prompt_and_an_announced_update_extend_the_allowed_silence() -> None:
    watch = StallWatch()
    assert listen(watch, LEAST_ALLOWED_S, ProbeAnswer.SAME)
    assert not watch.is_stalled(prefill_s=8.0)
    assert not watch.is_stalled(update_s=5.0)
    listen(watch, 8.0, ProbeAnswer.SAME)
    assert watch.is_stalled(prefill_s=8.0)


@given(seconds, seconds, seconds)
def test_the_allowed_silence_is_bounded_and_grows_with_each_reason(
    gap_s: float, prefill_s: float, update_s: float
) -> None:
    allowed_s = silence_allowed_s(largest_gap_s=gap_s, prefill_s=prefill_s, update_s=update_s)
    assert LEAST_ALLOWED_S <= allowed_s <= MOST_ALLOWED_S
    assert allowed_s <= silence_allowed_s(largest_gap_s=gap_s + 1, prefill_s=prefill_s, update_s=update_s)
    assert allowed_s <= silence_allowed_s(largest_gap_s=gap_s, prefill_s=prefill_s + 1, update_s=update_s)


@given(st.lists(st.floats(0.01, LEAST_ALLOWED_S - 2 * LONGEST_TICK_S), min_size=1, max_size=30))
def test_a_party_that_shows_progress_within_the_minimum_silence_is_never_suspected(gaps: list[float]) -> None:
    watch = StallWatch()
    for gap_s in gaps:
        assert not listen(watch, gap_s, ProbeAnswer.SAME)
        watch.progressed()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("heard"), st.just(0.0)),
            st.tuples(st.sampled_from(["mute", "same", "moved"]), st.just(0.0)),
            st.tuples(st.just("listened"), st.floats(0.0, 30.0)),
        ),
        max_size=60,
    )
)
def test_a_party_that_goes_silent_for_good_is_suspected_in_the_end(
    history: list[tuple[str, float]],
) -> None:
    watch = StallWatch()
    for what, elapsed_s in history:
        if what == "heard":
            watch.progressed()
        elif what == "listened":
            watch.listened(elapsed_s)
        else:
            watch.probed(ProbeAnswer(what))
    assert listen(watch, MOST_ALLOWED_S + TICK_S, ProbeAnswer.MUTE)
