"""Processes whose clocks differ agree on what is healthy, how old a phase is, and when something
was published."""

import time
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.core.types.tags import Role
from tests.fixtures.control_plane import Cast, phase_make, worker_make

SHIFTS = [timedelta(minutes=5), timedelta(minutes=-5)]
JUST_NOW_S = 14.0  # silent for one second longer, a machine counts as lost


def shift(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Make the wall clock of this process wrong from now on."""
    true_now, true_time = timezone.now, time.time

    def now() -> datetime:
        return true_now() + by

    monkeypatch.setattr(timezone, "now", now)
    monkeypatch.setattr(time, "time", lambda: true_time() + by.total_seconds())


def unheard_s() -> float:
    (machine,) = snapshot_load().machines
    return machine.unheard_s


@pytest.mark.parametrize("by", SHIFTS, ids=["ahead", "behind"])
def test_a_scheduler_with_a_wrong_clock_sees_a_healthy_machine(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, by: timedelta
) -> None:
    worker_make("alpha", "rollout").heartbeat()
    shift(monkeypatch, by)
    assert -1 < unheard_s() < JUST_NOW_S


@pytest.mark.parametrize("by", SHIFTS, ids=["ahead", "behind"])
def test_a_web_process_with_a_wrong_clock_records_the_right_time(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, by: timedelta
) -> None:
    worker = worker_make("alpha", "rollout")
    with monkeypatch.context() as wrong:
        shift(wrong, by)
        worker.heartbeat()
    assert -1 < unheard_s() < JUST_NOW_S


@pytest.mark.parametrize("by", SHIFTS, ids=["ahead", "behind"])
def test_rows_of_a_process_with_a_wrong_clock_have_the_right_age(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, by: timedelta
) -> None:
    shift(monkeypatch, by)
    job = cast.job(is_running=True)
    phase = phase_make(job, worker_make("alpha", "rollout").machine, Role.ROLLOUT)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    leased_at = Phase.objects.get(id=phase.id).leased_at
    job.refresh_from_db()
    for moment in (leased_at, job.created_at, job.started_at):
        assert abs((now - moment).total_seconds()) < 60
