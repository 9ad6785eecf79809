"""Lines of logs name the zone of their time."""

import logging
import time

import pytest

from seamlessflow.runtime.logs import LINE, UtcFormatter


def test_a_line_begins_with_its_moment_in_utc_wherever_the_host_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        record = logging.LogRecord("seamlessflow", logging.INFO, "", 0, "ready", None, None)
        record.created, record.msecs = 1_795_794_954.012, 12.0
        line = UtcFormatter(LINE).format(record)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert line == "2026-11-27T15:55:54.012Z INFO seamlessflow: ready"
