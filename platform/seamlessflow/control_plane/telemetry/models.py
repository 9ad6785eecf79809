"""Metric points, ledger intervals and log chunks. Losing telemetry never stops training."""

from django.db import models

from seamlessflow.control_plane.common.database.clock import StoredAtField


class MetricPoint(models.Model):
    """One value of one metric at one step (policy version) of a job, or several neighbouring points rolled up.

    A rolled-up row has all five columns from `first_step` on; its `step` and `value` are those of its last point.
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=120)
    step = models.PositiveBigIntegerField()
    value = models.FloatField()
    at = StoredAtField()
    first_step = models.PositiveBigIntegerField(null=True)
    num_points = models.PositiveBigIntegerField(null=True)
    value_min = models.FloatField(null=True)
    value_max = models.FloatField(null=True)
    value_sum = models.FloatField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "name", "step"], name="metric_point_unique")]

    def __str__(self) -> str:
        return f"{self.name} at {self.step}"


class LedgerInterval(models.Model):
    """A span of a machine's time with one state. The intervals of a machine touch and never overlap."""

    id = models.BigAutoField(primary_key=True)
    machine = models.ForeignKey("cluster.Machine", on_delete=models.CASCADE, related_name="intervals")
    project = models.ForeignKey("accounts.Project", null=True, on_delete=models.SET_NULL, related_name="+")
    job = models.ForeignKey("jobs.Job", null=True, on_delete=models.SET_NULL, related_name="+")
    boot_id = models.UUIDField(null=True, help_text="Null if the server filled a gap.")
    seq = models.PositiveBigIntegerField(null=True)
    state = models.CharField(max_length=16)
    cause = models.CharField(max_length=24, blank=True, default="")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    mean_in_flight = models.FloatField(null=True)
    num_slots = models.PositiveIntegerField(
        null=True,
        help_text="Serving: the number of requests that the engine decodes at once (rollout.max_num_seqs).",
    )
    num_intervals = models.PositiveIntegerField(
        null=True,
        help_text="Rolled up: the number of intervals that it replaces. Its duration is the sum of theirs.",
    )

    class Meta:
        ordering = ["machine", "started_at"]
        constraints = [
            models.UniqueConstraint(fields=["machine", "boot_id", "seq"], name="ledger_interval_once"),
            models.UniqueConstraint(fields=["machine", "started_at"], name="ledger_interval_start"),
            models.CheckConstraint(
                name="ledger_cause_iff_idle",
                condition=models.Q(state="idle") & ~models.Q(cause="")
                | ~models.Q(state="idle") & models.Q(cause=""),
            ),
        ]
        indexes = [
            models.Index(fields=["machine", "ended_at"], name="ledger_machine_end"),
            # The lanes show the last minutes of all machines at once.
            models.Index(fields=["ended_at"], name="ledger_end"),
            models.Index(
                fields=["machine", "-started_at"],
                name="ledger_rolled_up",
                condition=models.Q(num_intervals__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.state} {self.cause}".strip()


class LogChunk(models.Model):
    """Bytes of what a phase or one of its sessions printed, from `offset` on.

    If two chunks do not touch, the bytes between them were not kept.
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    phase = models.ForeignKey("scheduling.Phase", on_delete=models.CASCADE, related_name="log_chunks")
    session_id = models.UUIDField(null=True, help_text="Null: the log of the phase itself.")
    stream = models.CharField(max_length=16)
    offset = models.PositiveBigIntegerField()
    num_bytes = models.PositiveIntegerField()
    data = models.BinaryField()
    at = StoredAtField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["phase", "stream", "offset"],
                condition=models.Q(session_id=None),
                name="log_chunk_of_phase_once",
            ),
            models.UniqueConstraint(
                fields=["session_id", "offset"],
                condition=models.Q(session_id__isnull=False),
                name="log_chunk_of_session_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.stream} from {self.offset}"
