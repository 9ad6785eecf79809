"""Whoever waits for a client to leave is called once, and not after its wait."""

from seamlessflow.runtime.http.departure import Departure


def test_whoever_waits_is_called_when_the_client_leaves() -> None:
    departure, calls = Departure(), list[str]()
    with departure.awaited(lambda: calls.append("a")), departure.awaited(lambda: calls.append("b")):
        departure.happened()
        departure.happened()
    assert calls == ["a", "b"]


def test_who_waits_no_more_is_not_called() -> None:
    departure, calls = Departure(), list[str]()
    with departure.awaited(lambda: calls.append("a")):
        pass
    departure.happened()
    assert calls == []


def test_a_client_that_left_before_is_noticed_at_once() -> None:
    departure, calls = Departure(), list[str]()
    departure.happened()
    with departure.awaited(lambda: calls.append("a")):
        assert calls == ["a"]
