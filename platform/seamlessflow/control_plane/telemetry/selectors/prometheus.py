"""Gauges of the whole installation. One query computes each of them when `/metrics` is scraped.

They come from the tables, so every replica of the web process gives the same answer.
"""

from collections.abc import Iterable

from django.db.models import Count, Sum
from prometheus_client.core import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from seamlessflow.control_plane.cluster.models import Machine, MachineHeartbeat, reporting
from seamlessflow.control_plane.common.database.clock import database_now
from seamlessflow.control_plane.jobs.models import Job
from seamlessflow.control_plane.scheduling.models import Phase
from seamlessflow.core.lifecycle.jobs import JobState
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES
from seamlessflow.core.types.ledger import LedgerState


class TableCollector(Collector):
    def describe(self) -> Iterable[Metric]:
        """Return nothing, because registering must not query a database."""
        return []

    def collect(self) -> Iterable[Metric]:
        yield self._jobs()
        yield self._machines()
        yield self._phases()
        # Versions of a job grow by one from 0, so the query need not count them.
        published = Job.objects.aggregate(total=Sum("latest_version"))["total"] or 0
        yield CounterMetricFamily("seamlessflow_publications", "Policy versions published.", value=published)

    def _jobs(self) -> Metric:
        family = GaugeMetricFamily("seamlessflow_jobs", "Jobs by state.", labels=["state"])
        counted = dict(Job.objects.order_by().values_list("state").annotate(Count("id")))
        for state in JobState:
            family.add_metric([state], counted.get(state, 0))
        return family

    def _machines(self) -> Metric:
        family = GaugeMetricFamily("seamlessflow_machines", "Machines by ledger state.", labels=["state"])
        counted = dict.fromkeys(LedgerState, 0)
        rows = MachineHeartbeat.objects.filter(reporting(database_now()))
        for state, number in rows.values_list("open_state").annotate(Count("machine")):
            counted[LedgerState(state or LedgerState.UNKNOWN)] += number
        counted[LedgerState.DOWN] = Machine.objects.count() - sum(counted.values())
        for ledger_state, total in counted.items():
            family.add_metric([ledger_state], total)
        return family

    def _phases(self) -> Metric:
        family = GaugeMetricFamily(
            "seamlessflow_phases", "Phases that are not over, by role and state.", labels=["role", "state"]
        )
        live = Phase.objects.filter(state__in=sorted(LIVE_PHASE_STATES))
        counts = live.order_by().values_list("role", "state").annotate(Count("id"))
        for role, state, number in counts:
            family.add_metric([role, state], number)
        return family
