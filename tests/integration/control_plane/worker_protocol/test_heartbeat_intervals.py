"""Machines are told how often to send heartbeats, everybody grants them the silence that follows, and none costs more
because the fleet has grown."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat, reporting
from seamlessflow.control_plane.live.selectors import machine_rows
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.telemetry.selectors.ledger import machine_ledger
from seamlessflow.control_plane.worker_protocol import beats, heartbeats
from seamlessflow.control_plane.worker_protocol.fleet_size import COUNT_EVERY_S, FleetSize
from seamlessflow.core.types.ledger import IdleCause, LedgerState
from tests.fixtures.control_plane import Cast, Worker, worker_make

NUM_MACHINES = 1000
IDLE = {"open_state": LedgerState.IDLE, "open_cause": IdleCause.NO_JOB, "open_since_s": 1.0}


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of a process that has not counted the machines yet."""
    clock = Clock()
    fresh = FleetSize(clock)
    for module in (beats, heartbeats):
        monkeypatch.setattr(module, "fleet_size", fresh)
    return clock


def machines_create(num: int) -> None:
    Machine.objects.bulk_create(Machine(name=f"other-{number}", tags=["rollout"]) for number in range(num))


def told_s(worker: Worker, **fields: Any) -> float:
    """Return the interval that a machine is told, which must be what is stored."""
    interval_s = worker.heartbeat(**fields).interval_s
    assert MachineHeartbeat.objects.get(machine=worker.machine).interval_s == interval_s
    return interval_s


def test_the_interval_follows_the_size_of_the_fleet_within_the_time_of_a_count(
    cast: Cast, clock: Clock
) -> None:
    beta = worker_make("beta", "rollout")
    assert told_s(beta) == 1.0
    machines_create(NUM_MACHINES - 1)
    assert told_s(beta) == 1.0, "what was counted a moment ago is not counted again"

    clock.now_s += COUNT_EVERY_S
    told_s(beta)
    assert told_s(beta) == 5.0
    assert told_s(beta, **IDLE) == 5.0
    beta.reboot()
    assert told_s(beta) == 5.0, "a heartbeat with news tells the same"


@pytest.mark.parametrize("silent_s, is_up", [(24.0, True), (26.0, False)])
def test_everybody_grants_a_machine_five_of_its_intervals(cast: Cast, silent_s: float, is_up: bool) -> None:
    beta = worker_make("beta", "rollout")
    beta.heartbeat(**IDLE)
    past = timezone.now() - timedelta(seconds=silent_s)
    MachineHeartbeat.objects.update(received_at=past, interval_s=5.0)

    (seen,) = snapshot_load().machines
    assert (seen.is_healthy, seen.unheard_limit_s) == (is_up, 25.0)
    assert machine_rows()["beta"]["is_healthy"] is is_up
    assert MachineHeartbeat.objects.filter(reporting(timezone.now())).exists() is is_up
    shown = cast.operator.call("GET", "machines").json()["results"]  # type: ignore[attr-defined]
    assert [machine["is_up"] for machine in shown] == [is_up]
    states = {span.state for span in ledger_of(beta)}
    assert (LedgerState.DOWN in states) is not is_up


def ledger_of(worker: Worker) -> list[Any]:
    now = timezone.now()
    machine = Machine.objects.get(id=worker.machine.id)
    return machine_ledger(
        machine=machine, since=now - timedelta(seconds=60), until=now, readable=()
    ).intervals


def test_no_index_covers_what_every_heartbeat_writes(cast: Cast) -> None:
    """Then PostgreSQL stores a heartbeat beside the one before, and touches no index (a HOT update)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT array_agg(DISTINCT a.attname::text) FROM pg_index i JOIN pg_attribute a"
            " ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
            " WHERE i.indrelid = 'cluster_machineheartbeat'::regclass"
        )
        indexed = cursor.fetchone()
        cursor.execute("SELECT reloptions FROM pg_class WHERE oid = 'cluster_machineheartbeat'::regclass")
        options = cursor.fetchone()
    assert indexed == (["machine_id"],)
    assert options == (["fillfactor=50"],)


@pytest.mark.django_db(transaction=True)
def test_heartbeats_are_hot_updates(cast: Cast) -> None:
    beta = worker_make("beta", "rollout")
    beta.heartbeat()
    before = updates()
    for _ in range(20):
        beta.monotonic_s += 1.0
        beta.heartbeat(**IDLE)
    after = updates()
    assert after[0] - before[0] >= 20
    assert after[0] - before[0] == after[1] - before[1], "all of them"


def updates() -> tuple[int, int]:
    """Return how many rows of heartbeats were updated, and how many of them without an index."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'cluster_machineheartbeat'"
        )
        row = cursor.fetchone()
    assert row is not None
    return row[0], row[1]
