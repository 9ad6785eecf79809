"""`/metrics` for Prometheus: this process's counters and the installation's tables. Has counts, no names."""

from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from seamlessflow.control_plane.telemetry.selectors.prometheus import TableCollector

_tables = CollectorRegistry()
_tables.register(TableCollector())


def metrics(request: HttpRequest) -> HttpResponse:
    return HttpResponse(
        generate_latest(REGISTRY) + generate_latest(_tables), content_type=CONTENT_TYPE_LATEST
    )
