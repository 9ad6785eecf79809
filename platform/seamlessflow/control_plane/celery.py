"""Two Celery applications, because their brokers may be different servers.

`app` runs background work (retention, partitions) on `BACKGROUND_BROKER_URL`. `doorbells` only sends: to the queue
`machine.<name>` on `BROKER_URL`, where a supervisor listens. Both speak JSON and nothing else.
"""

import os

from celery import Celery
from django.conf import settings

from seamlessflow.control_plane.background_watch import WatchedConsumer

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seamlessflow.control_plane.settings")

# A sender must not wait for a broker that is gone: it has half a second to connect, and no second attempt.
DOORBELL_TIMEOUT_S = 0.5
JSON_ONLY = {
    "task_serializer": "json",
    "result_serializer": "json",
    "accept_content": ["json"],
    "task_ignore_result": True,
    "enable_utc": True,
    "broker_connection_retry_on_startup": True,
}


def _only(url: str) -> dict[str, str]:
    """Fix an app's broker: Celery's command line reads BROKER_URL as its own option and would set it for every app."""
    return {"broker_read_url": url, "broker_write_url": url}


app = Celery("seamlessflow", broker=settings.BACKGROUND_BROKER_URL)
app.conf.update(
    JSON_ONLY
    | {
        **_only(settings.BACKGROUND_BROKER_URL),
        "task_default_queue": "background",
        "task_acks_late": True,
        "worker_hijack_root_logger": False,
        "broker_transport_options": {"visibility_timeout": 3600},
        "beat_schedule_filename": str(settings.INCOMING_DIR.parent / "celerybeat-schedule"),
        "beat_schedule": {
            "node-partitions": {
                "task": "seamlessflow.node_partitions_ensure",
                "schedule": 24 * 3600.0,
                "options": {"queue": "background"},
            },
            "incoming-clear": {
                "task": "seamlessflow.incoming_clear",
                "schedule": 60.0,
                "options": {"queue": "background", "expires": 50.0},
            },
            "sign-in-attempts-forget": {
                "task": "seamlessflow.sign_in_attempts_forget",
                "schedule": 600.0,
                "options": {"queue": "background", "expires": 500.0},
            },
            "versions-prune": {
                "task": "seamlessflow.versions_prune",
                "schedule": 60.0,
                "options": {"queue": "background", "expires": 50.0},
            },
            "removals-run": {
                "task": "seamlessflow.removals_run",
                "schedule": 60.0,
                "options": {"queue": "background", "expires": 50.0},
            },
            "retention-apply": {
                "task": "seamlessflow.retention_apply",
                "schedule": 3600.0,
                "options": {"queue": "background", "expires": 3000.0},
            },
        },
    }
)
app.steps["consumer"].add(WatchedConsumer)
app.autodiscover_tasks()

doorbells = Celery("seamlessflow-doorbells", broker=settings.BROKER_URL, set_as_current=False)
doorbells.conf.update(
    JSON_ONLY
    | {
        **_only(settings.BROKER_URL),
        "broker_connection_timeout": DOORBELL_TIMEOUT_S,
        "broker_transport_options": {
            "max_retries": 0,
            "interval_start": 0,
            "interval_step": 0,
            "interval_max": 0,
            "socket_timeout": DOORBELL_TIMEOUT_S,
            "socket_connect_timeout": DOORBELL_TIMEOUT_S,
            "retry_on_timeout": False,
        },
    }
)
