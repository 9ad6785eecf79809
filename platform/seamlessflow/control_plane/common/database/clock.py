"""The one clock of the installation: the database's.

What one process stores and another judges (heard of, leased at, published at) is measured on it, so hosts whose clocks
differ agree. Invariant: the wall clock of a process is never asked; between two samples its monotonic clock counts on.
"""

import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, models

SAMPLE_S = 5.0  # how soon a step of the database's clock is followed


@dataclass(frozen=True, slots=True)
class _Sample:
    at: datetime
    monotonic_s: float


_lock = threading.Lock()
_sample: _Sample | None = None


def database_now() -> datetime:
    """The moment by the database's clock, read anew every SAMPLE_S at the most."""
    global _sample
    known = _sample
    if known is None or time.monotonic() - known.monotonic_s >= SAMPLE_S:
        known = _read()
        with _lock:
            if _sample is None or known.monotonic_s > _sample.monotonic_s:
                _sample = known
    return known.at + timedelta(seconds=time.monotonic() - known.monotonic_s)


def _read() -> _Sample:
    """Beside Django's cursors, whose statements people count. Half the way there and back belongs to the answer."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        asked_s = time.monotonic()
        row = connection.connection.execute("SELECT clock_timestamp()").fetchone()
        return _Sample(row[0], (asked_s + time.monotonic()) / 2)


class StoredAtField(models.DateTimeField):  # type: ignore[type-arg]  # generic in its stubs alone
    """When a row was made, by the database's clock. In the database and in migrations it is a plain moment."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["auto_now_add"] = True
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.DateTimeField", args, kwargs

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        if not add:
            return models.Field.pre_save(self, model_instance, add)
        moment = database_now()
        setattr(model_instance, self.attname, moment)
        return moment
