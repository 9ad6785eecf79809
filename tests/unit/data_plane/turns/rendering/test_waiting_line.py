"""Whose work a helper does next: jobs take turns, and slow jobs never occupy all helpers."""

from seamlessflow.data_plane.turns.rendering.waiting_line import SUSPECT_S, WaitingLine


def taken(line: WaitingLine[str], now_s: float = 0.0) -> str | None:
    found = line.take(now_s)
    return None if found is None else found[1]


def test_jobs_take_turns_however_many_requests_one_of_them_has() -> None:
    line: WaitingLine[str] = WaitingLine(num_helpers=8)
    for number in range(3):
        line.put("a", f"a{number}")
    line.put("b", "b0")
    assert [taken(line) for _ in range(5)] == ["a0", "b0", "a1", "a2", None]
    assert len(line) == 0


def test_suspects_together_leave_one_helper_to_the_others() -> None:
    line: WaitingLine[str] = WaitingLine(num_helpers=2)
    for job in ("slow", "slower"):
        line.suspect(job, 0.0)
        line.put(job, f"{job} 0")
        line.put(job, f"{job} 1")
    line.put("fine", "fine 0")
    assert [taken(line), taken(line), taken(line)] == ["slow 0", "fine 0", None]
    line.done("slow")
    assert taken(line) == "slower 0"


def test_suspicion_ends_and_a_lone_helper_serves_suspects_too() -> None:
    line: WaitingLine[str] = WaitingLine(num_helpers=1)
    line.suspect("slow", 0.0)
    line.put("slow", "0")
    line.put("slow", "1")
    assert [taken(line), taken(line)] == ["0", None]
    assert taken(line, SUSPECT_S + 1) == "1"


def test_work_that_is_tried_again_comes_first() -> None:
    line: WaitingLine[str] = WaitingLine(num_helpers=1)
    line.put("a", "0")
    line.put("a", "again", is_first=True)
    assert [taken(line), taken(line)] == ["again", "0"]
