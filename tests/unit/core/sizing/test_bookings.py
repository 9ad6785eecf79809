"""Nobody uses memory of a device that it does not have, whoever wakes, sleeps, comes and goes."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from seamlessflow.core.sizing.bookings import Bookings, Wanted

GIB = 2**30
TOTAL = 80


class Card:
    """A device that counts and refuses."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def hold(self, process: str, num_bytes: int) -> None:
        others = sum(held for other, held in self._held.items() if other != process)
        assert others + num_bytes <= TOTAL, f"{process} asked for {num_bytes} beside {others}"
        self._held[process] = num_bytes


class SharedCard(RuleBasedStateMachine):
    """Processes use on the card what they have booked, at most, and keep at most what they used."""

    processes: Bundle[str] = Bundle("processes")

    def __init__(self) -> None:
        super().__init__()
        self.bookings, self.card = Bookings[str](TOTAL), Card()
        self.num = 0

    @rule(
        target=processes,
        num_bytes=st.integers(0, 100),
        usual_bytes=st.integers(0, 100),
        share=st.sampled_from([0.0, 0.0, 0.5, 0.9, 1.0]),
    )
    def start(self, num_bytes: int, usual_bytes: int, share: float) -> str:
        self.num += 1
        process, wanted = f"process {self.num}", Wanted(num_bytes, usual_bytes, share)
        refusal = self.bookings.refusal(process, wanted)
        self.bookings.add(process, process, wanted)
        assert bool(self.bookings.wake(process)) == bool(refusal), "it is told the same before it is started"
        self.use(process)
        return process

    @rule(process=processes)
    def wake(self, process: str) -> None:
        if process in self.bookings:
            self.bookings.wake(process)
            self.use(process)

    @rule(process=processes)
    def make_room(self, process: str) -> None:
        """End those that sleep until it fits; then it does, unless somebody else is awake."""
        if process not in self.bookings:
            return
        others = [one for one in self.bookings if one != process and not self.bookings.is_awake(one)]
        is_alone = len(others) + 1 == len(list(self.bookings))
        lost = self.bookings.losses(process, others)
        for one in lost:
            self.end(one)
        if not self.bookings.wake(process):
            self.use(process)
        else:
            assert not is_alone, "nobody else is awake, and all who sleep could be ended"
            assert lost == [], "nobody is ended for nothing"

    @rule(process=processes, kept=st.floats(0, 1), peak=st.floats(0, 1))
    def sleep(self, process: str, kept: float, peak: float) -> None:
        if process not in self.bookings or not self.bookings.is_awake(process):
            return
        used_bytes = self.bookings.num_bytes(process)
        kept_bytes = int(kept * used_bytes)
        self.card.hold(process, kept_bytes)
        peak_bytes = max(kept_bytes, int(peak * used_bytes))
        self.bookings.sleep(process, kept_bytes=kept_bytes, peak_bytes=peak_bytes)

    @rule(process=consumes(processes))
    def leave(self, process: str) -> None:
        self.end(process)

    @invariant()
    def it_fits(self) -> None:
        assert sum(map(self.bookings.num_bytes, self.bookings)) <= TOTAL

    def use(self, process: str) -> None:
        if self.bookings.is_awake(process):
            self.card.hold(process, self.bookings.num_bytes(process))

    def end(self, process: str) -> None:
        self.card.hold(process, 0)
        self.bookings.remove(process)


TestSharedCard = SharedCard.TestCase
TestSharedCard.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def bookings(total: int = TOTAL * GIB, **wanted: int) -> Bookings[str]:
    made = Bookings[str](total)
    for process, gib in wanted.items():
        made.add(process, f"the {process}", Wanted(gib * GIB))
    return made


def test_a_refusal_says_who_has_the_memory() -> None:
    made = bookings(engine=60, trainer=40)
    assert made.wake("engine") == ""
    assert made.wake("trainer") == (
        "the trainer needs 40.0 GiB beside 60.0 GiB that the engine uses, but a device has 80.0 GiB"
    )
    made.sleep("engine", kept_bytes=52 * GIB)
    assert made.wake("trainer") == (
        "the trainer needs 40.0 GiB beside 52.0 GiB that the engine keeps while it sleeps, but a device has 80.0 GiB"
    )


def test_an_estimate_takes_what_is_free_and_keeps_nobody_from_a_device() -> None:
    made = bookings(engine=20)
    made.add("trainer", "the trainer", Wanted(40 * GIB, usual_bytes=100 * GIB))
    assert made.wake("engine") == ""
    assert made.wake("trainer") == ""
    assert made.num_bytes("trainer") == 60 * GIB
    made.sleep("trainer", kept_bytes=GIB)
    made.remove("engine")
    assert made.wake("trainer") == ""
    assert made.num_bytes("trainer") == 80 * GIB
    assert bookings(trainer=100).wake("trainer") == "", "nor does a sum that is certain"


def test_devices_of_unknown_size_refuse_nobody() -> None:
    made = bookings(0, engine=60, trainer=40)
    assert [made.wake(process) for process in ("engine", "trainer")] == ["", ""]
    assert made.share("engine") is None


def test_an_engine_that_takes_what_is_left_leaves_what_sleepers_keep() -> None:
    made = bookings(trainer=40)
    assert made.wake("trainer") == ""
    made.sleep("trainer", kept_bytes=10 * GIB)
    made.add("engine", "the engine", Wanted(20 * GIB, share=0.9))
    assert made.wake("engine") == ""
    assert made.share("engine") == pytest.approx(0.9 * 70 / 80)
    assert made.share("trainer") is None
    assert not made.is_outgrown("engine", ["trainer"])
    made.sleep("engine", kept_bytes=2 * GIB)
    assert made.wake("trainer") == ""
    made.sleep("trainer", kept_bytes=18 * GIB)
    assert made.is_outgrown("engine", ["trainer"]), "it would have to take less"


def test_nobody_is_ended_who_makes_no_difference() -> None:
    made = bookings(small=30, large=30, trainer=40)
    for process, gib in (("small", 2), ("large", 50)):
        assert made.wake(process) == ""
        made.sleep(process, kept_bytes=gib * GIB)
    assert made.losses("trainer", ["small", "large"]) == ["large"]
