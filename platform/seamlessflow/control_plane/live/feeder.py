"""Feeds the live events: one thread, in the process that leads scheduling, compares the database with its deltas.

It does so every 200 ms while a client has a socket open. Everything that changed on a topic since the last tick is one
delta, so a topic has at most five frames a second. The feeder remembers a delta only after the broker took
it: while that is away, deltas grow but none is lost. While no socket is open, it compares nothing: every 2 s it begins
a new epoch, so that clients which come back take a snapshot, and notes where growing tables end. The first socket
ends the pause at once. Invariant: what changed after a socket's snapshot is in a later delta.
"""

import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import redis
from django.db import Error as DatabaseError
from django.db import close_old_connections, connection, models
from django.db.models import Q

from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.common.database.prepared import prepared_rows
from seamlessflow.control_plane.common.files.removals import JOB_DELETED
from seamlessflow.control_plane.common.models import Event
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.live.broker import Audience, Delta, Publisher, audience_knock
from seamlessflow.control_plane.live.forests import PublishedForests, forests_compare
from seamlessflow.control_plane.live.frames import (
    MACHINES_TOPIC,
    NO_MACHINES_TOPIC,
    job_topic,
    jobs_topic,
    machines_topic,
)
from seamlessflow.control_plane.live.rewards import rewards_after
from seamlessflow.control_plane.live.rows import (
    edit_row,
    event_row,
    interval_row,
    job_row,
    metric_row,
    phase_row,
)
from seamlessflow.control_plane.live.selectors import (
    GROUP_EVENTS,
    MACHINE_EDITED,
    group_rows,
    job_objects,
    live_phases,
    machine_rows,
    token_rates,
)
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.control_plane.telemetry.models import LedgerInterval, MetricPoint
from seamlessflow.core.lifecycle.jobs import TERMINAL_JOB_STATES
from seamlessflow.core.protocol.live_rows import GroupRow, JobRewardRow, JobRow, MachineRow, PhaseRow
from seamlessflow.core.types.ids import IdKind, show_id
from seamlessflow.runtime.tasks import thread_supervised

TICK_S = 0.2
IDLE_S = 2.0  # between two looks at the ends of growing tables while there is no audience
RATE_EVERY_TICKS = 5
# An empty delta on `machines` is sent this often: a page that receives nothing for longer knows that it is behind.
BEAT_EVERY_TICKS = 25
RETRY_S = 1.0
MAX_ROWS = 1000  # of one kind in one tick
# Ids are given before commit: a row may appear after one with a larger id. Look back so far for such.
LOOK_BACK = 200
RECENTLY_ENDED = timedelta(seconds=30)
_log = logging.getLogger(__name__)


_Mark = tuple[
    int, int, int
]  # of the rows in a tail's window: their number, and the greatest and the sum of their ids


@dataclass
class _Tail:
    """Finds the rows of a growing table that were not published yet, in order of id."""

    newest: int
    published: set[int] = field(default_factory=set)
    mark: _Mark | None = None  # when everything was published; None: unknown
    _seen: _Mark | None = None  # before the rows were read that `confirm` counts as published
    _fresh: list[int] = field(default_factory=list)  # the ids that `confirm` counts as published

    def unpublished(self, rows: Any, mark: _Mark, *, hidden: Q | None = None) -> list[Any]:
        """Return the unpublished rows without those that are `hidden`, which no topic shows.

        Reads none while the mark stays the same, as it does in most ticks.
        """
        self._seen, self._fresh = mark, []
        if mark == self.mark:
            return []
        recent = rows.filter(id__gt=self.newest - LOOK_BACK).order_by("id").values_list("id", flat=True)
        numbers = list(recent[: MAX_ROWS + LOOK_BACK])
        if len(numbers) == MAX_ROWS + LOOK_BACK:
            self._seen = None  # there may be more
        self._fresh = [number for number in numbers if number not in self.published]
        visible = rows if hidden is None else rows.exclude(hidden)
        return list(visible.filter(id__in=self._fresh).order_by("id")) if self._fresh else []

    def confirm(self) -> None:
        self.mark = self._seen
        if self._fresh:
            self.published |= set(self._fresh)
            self.newest = max(self.newest, max(self.published))
            self.published = {number for number in self.published if number > self.newest - LOOK_BACK}


_TAILS: tuple[type[models.Model], ...] = (Event, MetricPoint, LedgerInterval)
_ENDS = " UNION ALL ".join(
    f"(SELECT {index}, id FROM {model._meta.db_table} ORDER BY id DESC LIMIT {LOOK_BACK})"  # noqa: S608 - our own tables
    for index, model in enumerate(_TAILS)
)
_BATCHES = "SELECT id, published_batch FROM jobs_job WHERE ended_at IS NULL"


def _tails_at_end() -> list[_Tail]:
    """Return tails, in the order of _TAILS, for which every row so far counts as published."""
    numbers: list[set[int]] = [set() for _ in _TAILS]
    for index, number in prepared_rows(_ENDS):
        numbers[index].add(number)
    newest = [max(recent, default=0) for recent in numbers]
    return [
        _Tail(newest=last, published={number for number in recent if number > last - LOOK_BACK})
        for last, recent in zip(newest, numbers, strict=True)
    ]


def _marks(tails: Sequence[tuple[_Tail, type[models.Model]]]) -> list[_Mark]:
    """Return the marks of several tails, in one query."""
    counts = [
        f"""SELECT {index}, count(*), coalesce(max(id), 0), coalesce(sum(id), 0)::bigint
            FROM {model._meta.db_table} WHERE id > %s"""  # noqa: S608 - names of our own tables
        for index, (_, model) in enumerate(tails)
    ]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(counts), [tail.newest - LOOK_BACK for tail, _ in tails])
        return [(count, newest, total) for _, count, newest, total in sorted(cursor.fetchall())]


@dataclass
class _Published:
    """What has already been published."""

    jobs: dict[UUID, JobRow] = field(default_factory=dict)
    phases: dict[UUID, PhaseRow] = field(default_factory=dict)
    machines: dict[str, MachineRow] = field(default_factory=dict)
    batches: dict[UUID, int] = field(default_factory=dict)
    rates: dict[UUID, float] = field(default_factory=dict)
    groups: dict[UUID, list[GroupRow]] = field(default_factory=dict)
    forests: PublishedForests = field(default_factory=PublishedForests)


class Feeder:
    def __init__(self) -> None:
        self._publisher = Publisher()
        self._audience = Audience()
        self._events, self._metrics, self._intervals = _tails_at_end()
        self._published = _Published()
        self._num_ticks = 0

    def turn(self, stop: threading.Event) -> None:
        """Publish what changed if there is an audience, and wait until the next turn is due."""
        if self._publisher.has_audience():
            self.tick()
            stop.wait(TICK_S)
            return
        self.skip()
        if not stop.is_set():
            self._audience.wait(IDLE_S)

    def tick(self) -> int:
        """Publish what changed; return the number of deltas. After redis.RedisError the next tick repeats them."""
        at = time.time_ns() // 1_000_000
        topics: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(list))
        published = self._published
        now = _Published(
            batches=dict(published.batches), rates=dict(published.rates), groups=published.groups
        )
        marks = _marks(
            [(self._events, Event), (self._metrics, MetricPoint), (self._intervals, LedgerInterval)]
        )
        events = self._events.unpublished(Event.objects, marks[0], hidden=Q(kind__startswith=GROUP_EVENTS))
        metrics = self._metrics.unpublished(MetricPoint.objects, marks[1])
        intervals = self._intervals.unpublished(LedgerInterval.objects.select_related("machine"), marks[2])
        jobs = self._active_jobs()
        self._compare_jobs(jobs, now, topics)
        self._compare_phases(now, topics)
        self._compare_learning(jobs, now, topics)
        now.forests = forests_compare(self._publisher.watched(), published.forests, topics)
        for event in events:
            if event.job_id is not None:
                topics[job_topic(event.job_id)]["events"].append(event_row(event))
            elif event.kind == JOB_DELETED:
                for topic in (jobs_topic(event.project_id), job_topic(event.subject_id)):
                    topics[topic]["deleted"].append(show_id(IdKind.JOB, event.subject_id))
            elif event.kind == MACHINE_EDITED:
                row = edit_row(event)
                if (machine := now.machines.get(row["machine"])) is not None:
                    topics[machines_topic(machine["pool"])]["edits"].append(row)
        for point in metrics:
            topics[job_topic(point.job_id)]["metrics"].append(metric_row(point))
        for interval in intervals:
            topics[machines_topic(interval.machine.pool)]["intervals"].append(interval_row(interval))
        if self._num_ticks % BEAT_EVERY_TICKS == BEAT_EVERY_TICKS - 1:
            for topic in (MACHINES_TOPIC, NO_MACHINES_TOPIC):
                topics[topic]["intervals"] += []
        self._publisher.publish(
            [Delta(topic=topic, at=at, data=dict(data)) for topic, data in topics.items()]
        )
        self._published = now
        self._num_ticks += 1
        for tail in (self._events, self._metrics, self._intervals):
            tail.confirm()
        return len(topics)

    def skip(self) -> None:
        """Let what grew so far count as published, unless an audience has begun.

        Rows that are compared need no such step: the first tick finds whatever differs from the last publication.
        """
        self._publisher.epoch_begin()  # before anything is let go: no client believes later that it missed nothing
        tails, batches = _tails_at_end(), dict(prepared_rows(_BATCHES))
        # Ask after reading: a socket attends before it takes its snapshot, so one that took it before is seen here.
        if not self._publisher.has_audience():
            self._events, self._metrics, self._intervals = tails
            self._published.batches, self._published.forests = batches, PublishedForests()
            self._num_ticks = 0  # the first tick also makes the comparisons of once a second

    def close(self) -> None:
        self._publisher.close()
        self._audience.close()

    def _active_jobs(self) -> list[Job]:
        recently = Q(ended_at__gt=database_now() - RECENTLY_ENDED)
        return list(job_objects().filter(~Q(state__in=TERMINAL_JOB_STATES) | recently, deleted_at=None))

    def _compare_jobs(self, jobs: list[Job], now: _Published, topics: dict[str, dict[str, Any]]) -> None:
        for job in jobs:
            row = now.jobs[job.id] = job_row(job)
            if self._published.jobs.get(job.id) != row:
                topics[jobs_topic(job.project_id)]["jobs"].append(row)
                topics[job_topic(job.id)]["jobs"].append(row)

    def _compare_phases(self, now: _Published, topics: dict[str, dict[str, Any]]) -> None:
        live = live_phases()
        gone = self._published.phases.keys() - {phase.id for phase in live}
        ended = Phase.objects.filter(id__in=gone).select_related("machine") if gone else []
        for phase in (*live, *ended):
            row = phase_row(phase)
            if self._published.phases.get(phase.id) != row:
                topics[job_topic(phase.job_id)]["phases"].append(row)
        now.phases = {phase.id: phase_row(phase) for phase in live}
        now.machines = machine_rows(live)
        for name, machine in now.machines.items():
            known = self._published.machines.get(name)
            if known != machine:
                topics[machines_topic(machine["pool"])]["machines"].append(machine)
            if known is not None and known["pool"] != machine["pool"]:
                topics[machines_topic(known["pool"])]["left"].append(name)

    def _compare_learning(self, jobs: list[Job], now: _Published, topics: dict[str, dict[str, Any]]) -> None:
        """Add rewards of newly published batches and, once a second, the newest groups and the rate of tokens."""
        for job in jobs:
            known = now.batches.get(job.id, job.published_batch)
            now.batches[job.id] = job.published_batch
            if known < job.published_batch:
                rewards = rewards_after([job.id], known).get(job.id, [])
                topics[job_topic(job.id)]["rewards"] += rewards
                shown = show_id(IdKind.JOB, job.id)
                of_job: list[JobRewardRow] = [{**row, "job": shown} for row in rewards]
                topics[jobs_topic(job.project_id)]["rewards"] += of_job
        if self._num_ticks % RATE_EVERY_TICKS == 0:
            job_ids = [job.id for job in jobs]
            rates, groups = token_rates(job_ids), group_rows(job_ids)
            now.groups = groups
            for job in jobs:
                known_groups = self._published.groups.get(job.id, [])
                if changed := [row for row in groups.get(job.id, []) if row not in known_groups]:
                    topics[job_topic(job.id)]["groups"] += changed
                rate = rates.get(job.id, 0.0)
                if now.rates.get(job.id) != rate:
                    topics[job_topic(job.id)]["tokens_per_s"] = rate
                    now.rates[job.id] = rate


@contextmanager
def feeding() -> Iterator[None]:
    """Run the feeder in a thread while the context lasts."""
    stop = threading.Event()
    thread = thread_supervised(partial(_run, stop), name="live-feeder")
    try:
        yield
    finally:
        stop.set()
        with contextlib.suppress(redis.RedisError):  # then the thread does not wait for an audience either
            audience_knock()
        thread.join(5.0)


def _run(stop: threading.Event) -> None:
    try:
        while not stop.is_set():
            _feed(stop)
    finally:
        connection.close()


def _feed(stop: threading.Event) -> None:
    """Run until stopped or the database fails. A broker that is away only makes the next delta larger."""
    feeder = None
    is_away = False
    while not stop.is_set():
        try:
            close_old_connections()
            feeder = feeder or Feeder()
            feeder.turn(stop)
        except redis.RedisError as error:
            if not is_away:
                _log.warning("the events broker is away, live events wait: %s", error)
            is_away = True
            stop.wait(RETRY_S)
        except DatabaseError as error:
            _log.warning("live events wait for the database: %s", " ".join(str(error).split()))
            connection.close()
            stop.wait(RETRY_S)
        else:
            is_away = False
    if feeder is not None:
        feeder.close()
