"""The poison benchmark's own arithmetic: its sessions repeat, long ones fail more often, and its test sees a shift."""

import random

from tests.benchmarks.poison import Faults, Script, ks_p


def script_of(faults: Faults, *, attempt: int = 1) -> Script:
    return Script(faults, {f"{slot}": (slot // 8, slot % 8, attempt) for slot in range(2000)})


def test_the_next_attempt_of_a_slot_is_the_same_session_unless_it_is_drawn_anew() -> None:
    for faults, is_same in ((Faults(0.3), True), (Faults(0.3, are_drawn_anew=True), False)):
        first, second = script_of(faults), script_of(faults, attempt=2)
        sessions = [(first.session(key), second.session(key)) for key in first.attempts]
        assert all(one == two for one, two in sessions) is is_same


def test_the_share_of_failures_is_as_asked_and_grows_with_the_length() -> None:
    script = script_of(Faults(0.3))
    failures = {key: script.failure(key, script.session(key)[0]) for key in script.attempts}
    assert 0.25 < sum(kind is not None for kind in failures.values()) / len(failures) < 0.35
    assert len({kind for kind in failures.values() if kind}) == 4
    turns = {key: script.session(key)[0] for key in script.attempts}
    long, short = ([key for key in turns if (turns[key] > 10) is is_long] for is_long in (True, False))
    assert sum(failures[key] is not None for key in long) / len(long) > 1.3 * sum(
        failures[key] is not None for key in short
    ) / len(short)


def test_the_comparison_of_lengths_sees_a_shift_and_only_that() -> None:
    chance = random.Random(5)
    draws = [[chance.lognormvariate(median, 1.0) for _ in range(2000)] for median in (0.0, 0.0, 0.3)]
    assert ks_p(draws[0], draws[0]) == 1.0
    assert ks_p(draws[0], draws[1]) > 0.05
    assert ks_p(draws[0], draws[2]) < 1e-6
