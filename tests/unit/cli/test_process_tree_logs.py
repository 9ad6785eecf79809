"""Logs of child processes: bounded, in order, and quotable."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seamlessflow.cli.local.log_files import NUM_GENERATIONS, RotatedLog, log_tail


def test_a_full_log_is_renamed_and_the_oldest_is_deleted(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "web.log", max_bytes=10)
    for number in range(8):
        log.write(f"line {number}\n".encode())
    log.close()
    assert (tmp_path / "web.log").read_text() == "line 7\n"
    assert (tmp_path / "web.log.1").read_text() == "line 6\n"
    assert len(list(tmp_path.iterdir())) == NUM_GENERATIONS + 1


def test_the_log_of_an_earlier_run_is_continued(tmp_path: Path) -> None:
    for word in ("first\n", "second\n"):
        log = RotatedLog(tmp_path / "web.log")
        log.write(word.encode())
        log.close()
    assert (tmp_path / "web.log").read_text() == "first\nsecond\n"


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """Behave as a full disk: a write that does not fit is cut, then refused."""
    former, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (former, hard))


def test_a_full_disk_costs_lines_which_the_log_reports_and_blocks_nobody(tmp_path: Path) -> None:
    log = RotatedLog(tmp_path / "web.log")
    log.write(b"before\n")
    with files_of_at_most(10):
        log.write(b"lost 1\n")
        log.write(b"lost 2\n")
    log.write(b"after\n")
    log.close()

    before, part, notice, after = (tmp_path / "web.log").read_text().splitlines()
    assert (before, part, after) == ("before", "los", "after")
    assert notice.startswith("[14 bytes of this log were lost: ")


def test_the_tail_contains_only_the_end(tmp_path: Path) -> None:
    path = tmp_path / "web.log"
    path.write_text("early\n" * 1000 + "late\n")
    assert log_tail(path, num_bytes=11) == "early\nlate"
    assert log_tail(tmp_path / "absent.log") == ""
