"""Phases: leases of a machine to a job in one role, each with a fence; and judgements of machines that fail them.

Invariants, held by indexes: at most one live phase rolls out or trains on a machine, and a job has at most one live
agent phase there. How many agent phases a machine has is checked under its lock, when one is leased.
"""

from django.db import models

from seamlessflow.control_plane.common.database.clock import StoredAtField
from seamlessflow.control_plane.common.ids import new_id
from seamlessflow.core.lifecycle.phases import LIVE_PHASE_STATES, FailureCause, PhaseState
from seamlessflow.core.types.tags import EXCLUSIVE_ROLES, Role

_LIVE = models.Q(state__in=sorted(state.value for state in LIVE_PHASE_STATES))
_EXCLUSIVE = models.Q(role__in=sorted(role.value for role in EXCLUSIVE_ROLES))


class Phase(models.Model):
    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="phases")
    machine = models.ForeignKey("cluster.Machine", on_delete=models.CASCADE, related_name="phases")
    role = models.CharField(max_length=16, choices=[(r.value, r.value) for r in Role])
    fence = models.PositiveBigIntegerField(help_text="The machine's counter when the phase was leased.")
    state = models.CharField(
        max_length=16, choices=[(s.value, s.value) for s in PhaseState], default=PhaseState.LEASED.value
    )
    reason = models.TextField(blank=True, default="", help_text="Why the phase is in this state.")
    boot_id = models.UUIDField(null=True, help_text="Boot of the supervisor that took the phase.")
    engines = models.JSONField(
        null=True, help_text="Rollout: number, endpoint and version of each engine, and why it was lost."
    )
    desired_version = models.PositiveBigIntegerField(
        default=0, help_text="Rollout: the version that the engines should serve."
    )
    served_version = models.PositiveBigIntegerField(
        null=True, help_text="Rollout: the oldest version that an engine of the phase serves."
    )
    num_batches = models.PositiveIntegerField(
        null=True, help_text="Train: number of updates after which the phase ends by itself."
    )
    next_role = models.CharField(
        max_length=16,
        blank=True,
        default="",
        db_default="",
        help_text="What the machine does next when this phase ends.",
    )
    next_job = models.ForeignKey(
        "jobs.Job",
        null=True,
        db_index=False,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="The job that the machine works for next; null: the same one.",
    )
    next_num_batches = models.PositiveIntegerField(null=True)
    next_reason = models.TextField(blank=True, default="", db_default="")
    num_read_again_tokens = models.PositiveBigIntegerField(
        default=0,
        db_default=0,
        help_text="Rollout: tokens that other engines had to read again because turns left this one.",
    )
    gang_id = models.UUIDField(
        null=True, db_index=True, help_text="Train: shared by the phases of one gang, on several machines."
    )
    gang_member = models.PositiveSmallIntegerField(
        null=True, help_text="Number within the gang: 0 leads, and ranks are numbered in this order."
    )
    drain_grace_s = models.FloatField(
        null=True, help_text="Draining: seconds for which running work may continue; null: no limit."
    )
    failure_cause = models.CharField(
        max_length=16,
        blank=True,
        default="",
        db_default="",
        choices=[(c.value, c.value) for c in FailureCause],
        help_text="Failed: why. Only `work` may be the fault of the machine.",
    )
    leased_at = StoredAtField()
    active_at = models.DateTimeField(null=True)
    draining_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-leased_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["machine"], condition=_LIVE & _EXCLUSIVE, name="phase_one_exclusive_live"
            ),
            models.UniqueConstraint(
                fields=["machine", "job"],
                condition=_LIVE & models.Q(role=Role.AGENT.value),
                name="phase_one_agents_live",
            ),
            models.UniqueConstraint(fields=["machine", "fence"], name="phase_fence_unique"),
        ]
        indexes = [
            models.Index(fields=["job", "state"], name="phase_job_state"),
            models.Index(fields=["job", "role", "-leased_at"], name="phase_job_role_leased"),
            models.Index(
                fields=["next_job"],
                name="phase_taken_over",
                condition=models.Q(next_job__isnull=False, num_read_again_tokens__gt=0),
            ),
            models.Index(
                fields=["ended_at"],
                condition=models.Q(failure_cause=FailureCause.WORK.value),
                name="phase_failed_by_work",
            ),
            models.Index(fields=["machine", "-fence"], condition=_EXCLUSIVE, name="phase_exclusive_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.role} phase, fence {self.fence}"


class MachineJudgement(models.Model):
    """The judgement of a machine whose phases failed or rolled out slowly. It is in quarantine while
    `quarantined_at` is set."""

    machine = models.OneToOneField(
        "cluster.Machine", primary_key=True, on_delete=models.CASCADE, related_name="judgement"
    )
    quarantined_at = models.DateTimeField(null=True)
    until_at = models.DateTimeField(
        null=True, help_text="From then on, one phase tries out whether the machine works again."
    )
    reason = models.TextField(blank=True, default="", help_text="Why it was quarantined last.")
    num_quarantines = models.PositiveIntegerField(
        default=0, help_text="Number of quarantines without good work in between; each is twice as long."
    )
    judged_fence = models.PositiveBigIntegerField(
        default=0, help_text="Failures of phases up to this fence are judged."
    )
    is_slow = models.BooleanField(
        default=False,
        db_default=False,
        help_text="It rolled out slowly, so only the pace of a phase clears it.",
    )

    def __str__(self) -> str:
        return f"judgement of {self.machine}"
