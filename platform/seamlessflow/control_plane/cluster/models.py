"""Machines (desired state: tags, cordon) and heartbeats (observed state, a table of its own).

`generation` is the ETag; only edits of desired state bump it.
"""

from datetime import datetime, timedelta

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Greatest

from seamlessflow.control_plane.common.database.clock import StoredAtField
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.core.scheduling.heartbeats import (
    HEARTBEAT_LIMIT_S,
    LIMIT_INTERVALS,
    SHORTEST_INTERVAL_S,
    unheard_limit_s,
)
from seamlessflow.core.types.desired_state import ORDINARY_COST
from seamlessflow.core.types.limits import Cost, MachineName, PoolName, Tag, limits_of
from seamlessflow.core.types.pools import OPEN_POOL


class Machine(models.Model):
    """A host, or a slice of one, with capability tags; runs one supervisor."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=limits_of(MachineName).max_length, unique=True)
    tags = ArrayField(models.CharField(max_length=limits_of(Tag).max_length), default=list)
    pool = models.CharField(max_length=limits_of(PoolName).max_length, default=OPEN_POOL)
    cost = models.FloatField(default=ORDINARY_COST, db_default=ORDINARY_COST, help_text=limits_of(Cost).help)
    generation = models.PositiveBigIntegerField(default=1)
    is_cordoned = models.BooleanField(default=False, help_text="The machine gets no new phases.")
    is_draining = models.BooleanField(
        default=False, help_text="Its running phases are handed over and ended."
    )
    reason = models.TextField(blank=True, default="", help_text="Reason of the last edit.")
    edited_by = models.CharField(max_length=150, blank=True, default="")
    last_fence = models.PositiveBigIntegerField(
        default=0, help_text="Fence of the newest phase. It only grows."
    )
    created_at = StoredAtField()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class PoolGrant(models.Model):
    """A project that may use a pool's machines. The pool `default` is open to all while it has no grant."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    pool = models.CharField(max_length=limits_of(PoolName).max_length)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="pool_grants")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["pool", "project"], name="pool_grant_unique")]

    def __str__(self) -> str:
        return f"{self.pool} to {self.project}"


class MachineHeartbeat(models.Model):
    """The newest report of a machine. `anchor_at` is the server's time at the machine's monotonic zero of this boot.

    No index covers what every heartbeat writes, so that PostgreSQL stores it without touching any index.
    """

    machine = models.OneToOneField(
        Machine, primary_key=True, on_delete=models.CASCADE, related_name="heartbeat"
    )
    boot_id = models.UUIDField()
    anchor_at = models.DateTimeField()
    received_at = models.DateTimeField()
    interval_s = models.FloatField(
        default=SHORTEST_INTERVAL_S,
        db_default=SHORTEST_INTERVAL_S,
        help_text="Time until the next heartbeat, as the machine was told.",
    )
    num_intervals_acked = models.PositiveBigIntegerField(default=0)
    open_state = models.CharField(max_length=16, blank=True, default="")
    open_cause = models.CharField(max_length=24, blank=True, default="")
    open_since_at = models.DateTimeField(null=True)
    num_in_flight = models.PositiveIntegerField(
        null=True,
        help_text="Number of requests at the front of its rollout phase; null if it has no such phase.",
    )
    capabilities = models.JSONField(default=dict)
    released_devices = models.JSONField(
        default=dict,
        db_default={},
        help_text="Problems of cordoned devices that a person forgave, by the device's id.",
    )

    def __str__(self) -> str:
        return f"heartbeat of {self.machine}"

    @property
    def limit(self) -> timedelta:
        """For how long the machine may be silent."""
        return timedelta(seconds=unheard_limit_s(self.interval_s))

    def is_heard(self, now: datetime) -> bool:
        return now - self.received_at <= self.limit


def reporting(now: datetime) -> models.Q:
    """Return the condition for heartbeats of machines that report, as `MachineHeartbeat.is_heard` judges them."""
    limit_s = Greatest(models.F("interval_s") * float(LIMIT_INTERVALS), models.Value(HEARTBEAT_LIMIT_S))
    limit = models.ExpressionWrapper(
        limit_s * models.Value(timedelta(seconds=1)), output_field=models.DurationField()
    )
    since = models.ExpressionWrapper(models.Value(now) - limit, output_field=models.DateTimeField())
    return models.Q(received_at__gte=since)
