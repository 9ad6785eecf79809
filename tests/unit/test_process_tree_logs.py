"""Logs of child processes: bounded, in order, and quotable."""

from pathlib import Path

from seamlessflow.cli.local.log_files import NUM_GENERATIONS, RotatedLog, log_tail


def test_full_log_is_renamed_away_and_the_oldest_is_forgotten(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "web.log", max_bytes=10)
    for number in range(8):
        log.write(f"line {number}\n".encode())
    log.close()
    assert (tmp_path / "web.log").read_text() == "line 7\n"
    assert (tmp_path / "web.log.1").read_text() == "line 6\n"
    assert len(list(tmp_path.iterdir())) == NUM_GENERATIONS + 1


def test_log_of_an_earlier_run_is_continued(tmp_path: Path) -> None:
    for word in ("first\n", "second\n"):
        log = RotatedLog(tmp_path / "web.log")
        log.write(word.encode())
        log.close()
    assert (tmp_path / "web.log").read_text() == "first\nsecond\n"


def test_tail_quotes_the_end_only(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.write_text("early\n" * 1000 + "late\n")
    assert log_tail(path, num_bytes=11) == "early\nlate"
    assert log_tail(tmp_path / "absent.log") == ""
