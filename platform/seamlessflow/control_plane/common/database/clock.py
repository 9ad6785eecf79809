"""The one clock of the installation: the database's.

Times that one process stores and another compares (received at, leased at, published at) come from it, so hosts with
different clocks agree. Invariant: no code asks a process's wall clock; its monotonic clock bridges two samples. A
sample is wrong by up to half the time that the database took to answer, so where the order of two moments matters to
the millisecond, `database_read` asks again.
"""

import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, models

SAMPLE_S = 5.0  # after so long a process notices that the database's clock was set


@dataclass(frozen=True, slots=True)
class _Sample:
    at: datetime
    monotonic_s: float


_lock = threading.Lock()
_sample: _Sample | None = None


def database_now() -> datetime:
    """Return the time by the database's clock, which is read again at most every SAMPLE_S."""
    global _sample
    known = _sample
    if known is None or time.monotonic() - known.monotonic_s >= SAMPLE_S:
        known = _read()
        with _lock:
            if _sample is None or known.monotonic_s > _sample.monotonic_s:
                _sample = known
    return known.at + timedelta(seconds=time.monotonic() - known.monotonic_s)


def database_read() -> datetime:
    """Return a moment by the database's clock that is later than all that this process has read from the database.

    It is read without Django's cursors, whose statements are counted.
    """
    connection.ensure_connection()
    with connection.wrap_database_errors:
        moment: datetime = connection.connection.execute("SELECT clock_timestamp()").fetchone()[0]
        return moment


def _read() -> _Sample:
    """Return a sample that assumes the clock was read halfway."""
    asked_s = time.monotonic()
    moment = database_read()
    return _Sample(moment, (asked_s + time.monotonic()) / 2)


class StoredAtField(models.DateTimeField):  # type: ignore[type-arg]  # generic in its stubs alone
    """When a row was created, by the database's clock, unless the moment is given. Database and migrations see a plain
    DateTimeField."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["auto_now_add"] = True
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.DateTimeField", args, kwargs

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        if not add or getattr(model_instance, self.attname) is not None:
            return models.Field.pre_save(self, model_instance, add)
        moment = database_now()
        setattr(model_instance, self.attname, moment)
        return moment
