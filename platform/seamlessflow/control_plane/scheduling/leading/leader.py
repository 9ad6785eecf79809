"""The scheduling loop of one process: lead or stand by, listen, look, and decide and apply if something changed.

One process leads, by an advisory lock that PostgreSQL gives back when its connection dies. Overlapping leaders are
harmless (every decision is a compare-and-set), so a lost connection only means: reconnect and lead anew.
"""

import logging
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from uuid import UUID

import psycopg
from django.db import Error as DatabaseError
from django.db import close_old_connections, connections

from seamlessflow.control_plane.common.services import SCHEDULER_CHANNEL
from seamlessflow.control_plane.jobs.services.self_pause import barren_jobs_pause, breaches_pause
from seamlessflow.control_plane.scheduling.leading.doorbells import EnginesBehind, WakeUpSender
from seamlessflow.control_plane.scheduling.selectors.snapshot import snapshot_load
from seamlessflow.control_plane.scheduling.services.leases import owed_store, plan_apply
from seamlessflow.core.scheduling.blame.health import Patience
from seamlessflow.core.scheduling.passes.arrears import Arrears
from seamlessflow.core.scheduling.quiet import Quiet, quiet_s
from seamlessflow.core.scheduling.scheduler import decide
from seamlessflow.core.scheduling.snapshot import Snapshot
from seamlessflow.runtime.connections import KEEPALIVES, connection_cut

LOCK_KEY = 0x5EA71E55
POLL_S = 0.5
MIN_PAUSE_S = 0.01  # between cycles; notifications that come meanwhile are one cycle
SLOW_CYCLE_S = 0.1
CHECK_EVERY_S = 5.0
BARREN_EVERY_S = 1.0  # jobs whose agents bring no rewards are looked for this often
ANSWER_S = 5.0
BACKOFF_S = (0.2, 0.5, 1.0, 2.0)
# Those of Django's parameters that say where and how to connect, without its pool and cursor options.
CONNECT_KEYS = (
    "user", "password", "host", "port", "dbname", "sslmode", "sslrootcert", "sslcert", "sslkey", "gssencmode",
    "target_session_attrs",
)  # fmt: skip
_log = logging.getLogger(__name__)
Companion = Callable[[], AbstractContextManager[object]]


def database_connect() -> psycopg.Connection:
    """Open a connection beside Django's, for what needs a session of its own: locks and LISTEN."""
    parameters = connections["default"].get_connection_params()
    arguments = {key: parameters[key] for key in CONNECT_KEYS if parameters.get(key)}
    return psycopg.connect(
        **(arguments | KEEPALIVES),
        autocommit=True,
        connect_timeout=5,
        application_name="seamlessflow-scheduler",
    )


class Leader:
    """The scheduling loop; it runs until `stop` is set. `companion` runs while this process leads (it feeds live
    events).

    `on_turn` is called on every turn of whatever loop it is in: leading, standing by or waiting for the database.
    """

    def __init__(
        self, *, stop: threading.Event, companion: Companion, on_turn: Callable[[], None] = lambda: None
    ) -> None:
        self._stop = stop
        self._companion = companion
        self._on_turn = on_turn
        self._wake_up_sender = WakeUpSender()
        self._behind = EnginesBehind()
        self._quiet: Quiet | None = None
        self._barren_at_s = float("-inf")
        self._arrears = Arrears()
        self._differences: Mapping[UUID, float] = {}
        self._looked_at_s = time.monotonic()

    def run(self) -> None:
        num_failures = 0
        while not self._stop.is_set():
            self._on_turn()
            started_at = time.monotonic()
            try:
                with database_connect() as session:
                    self._run_session(session)
            except (psycopg.Error, DatabaseError) as error:
                # A session that lasted shows that the database was back, so begin with the shortest pause again.
                num_failures = 1 if time.monotonic() - started_at > BACKOFF_S[-1] else num_failures + 1
                pause_s = BACKOFF_S[min(num_failures, len(BACKOFF_S)) - 1]
                _log.warning("the database is away, again in %g s: %s", pause_s, " ".join(str(error).split()))
                connections.close_all()
                self._stop.wait(pause_s)
        self._wake_up_sender.close()

    def _run_session(self, session: psycopg.Connection) -> None:
        with _answering(session):
            session.execute(f"LISTEN {SCHEDULER_CHANNEL}")
        if not self._lead_won(session):
            return
        _log.info("this process leads")
        checked_at = time.monotonic()
        patience = Patience(since_s=checked_at)
        self._quiet = None
        self._arrears, self._differences = Arrears(), {}  # another process may have led meanwhile
        with self._companion():
            while not self._stop.is_set():
                self._on_turn()
                if time.monotonic() - checked_at > CHECK_EVERY_S:
                    with _answering(session):
                        session.execute("SELECT 1")
                    close_old_connections()
                    checked_at = time.monotonic()
                self._cycle(patience)
                self._wait(session)

    def _lead_won(self, session: psycopg.Connection) -> bool:
        """Stand by until the lock is free. Returns False if stopped meanwhile."""
        is_standing_by = False
        while not self._stop.is_set():
            self._on_turn()
            with _answering(session):
                row = session.execute("SELECT pg_try_advisory_lock(%s)", [LOCK_KEY]).fetchone()
            if row is not None and row[0]:
                return True
            if not is_standing_by:
                _log.info("another process leads; standing by")
                is_standing_by = True
            self._stop.wait(POLL_S)
        return False

    def _cycle(self, patience: Patience) -> None:
        """Decide if the snapshot is another one than when nothing had to be done, or if time has made a difference."""
        started_at = time.monotonic()
        if started_at - self._barren_at_s >= BARREN_EVERY_S:
            barren_jobs_pause()
            breaches_pause()
            self._barren_at_s = started_at
        snapshot = snapshot_load(may_evict=patience.is_over(started_at))
        patience.note(snapshot.machines, started_at)
        self._pass_time(snapshot, started_at)
        if self._quiet is None or not self._quiet.covers(snapshot, started_at):
            self._decide(snapshot, started_at)
        took_s = time.monotonic() - started_at
        if took_s > SLOW_CYCLE_S:
            _log.warning("a cycle took %.0f ms", took_s * 1000)

    def _pass_time(self, snapshot: Snapshot, now_s: float) -> None:
        """Add up what jobs lacked since the last look. What they are owed from now on is in the next snapshot."""
        owed_store(self._arrears.pass_time(snapshot, self._differences, now_s - self._looked_at_s))
        self._looked_at_s = now_s

    def _decide(self, snapshot: Snapshot, now_s: float) -> None:
        """Decide and apply. A decision may lose a race, so only a plan without any is remembered."""
        self._quiet = None
        for wake_up in self._behind.wake_ups(snapshot):
            self._wake_up_sender.send(wake_up)
        plan = decide(snapshot)
        self._differences = plan.differences
        for wake_up in plan_apply(plan):
            self._wake_up_sender.send(wake_up)
        if not plan.decisions:
            self._quiet = Quiet(snapshot, until_s=now_s + quiet_s(snapshot))

    def _wait(self, session: psycopg.Connection) -> None:
        """Wait for a notification, for at most POLL_S; after one, pause for MIN_PAUSE_S.

        It waits for the socket, because psycopg's own waiting looks up ten times a second. What psycopg has already
        read, it read before the last cycle, which therefore covered it.
        """
        socket = select.poll()
        socket.register(session.fileno(), select.POLLIN)
        if socket.poll(POLL_S * 1000):
            self._stop.wait(MIN_PAUSE_S)
        # The generator is run to its end: a suspended one holds the connection's lock.
        list(session.notifies(timeout=0))  # one cycle covers what came meanwhile


@contextmanager
def _answering(session: psycopg.Connection) -> Iterator[None]:
    """Make questions in this block raise psycopg.OperationalError if the server does not answer within ANSWER_S.

    A silent connection that listens looks like a dead one, so the leader asks the server now and then.
    """
    cutting = threading.Timer(ANSWER_S, connection_cut, [session.fileno()])
    cutting.start()
    try:
        yield
    finally:
        cutting.cancel()
