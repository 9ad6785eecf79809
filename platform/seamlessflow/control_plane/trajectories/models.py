"""Tables that gateways write with their own SQL; Django only migrates and reads them.

Token arrays are packed little-endian bytes (int32 ids, float32 logprobs), zstd-compressed by the writer and kept with
STORAGE EXTERNAL. `Node` is partitioned by `month`, the month its *session* was opened, so that (month, session,
node_index) is a true key. Statuses move only through `core.lifecycle.groups`.
"""

from enum import StrEnum

from django.contrib.postgres.fields import ArrayField
from django.db import models

from seamlessflow.core.lifecycle.groups import (
    BatchState,
    DropCause,
    EvaluationState,
    GroupState,
    SessionState,
)


def _choices(values: type[StrEnum]) -> list[tuple[str, str]]:
    return [(value.value, value.value) for value in values]


class PromptContent(models.Model):
    """Content-addressed tokens of a task prompt, shared by all sessions of the job that begin with it."""

    id = models.UUIDField(primary_key=True)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="+")
    digest = models.BinaryField(help_text="blake2b-16 over the int32 token bytes.")
    num_tokens = models.PositiveIntegerField()
    token_ids = models.BinaryField()

    class Meta:
        db_table = "trajectory_prompt"
        constraints = [models.UniqueConstraint(fields=["job", "digest"], name="trajectory_prompt_content")]

    def __str__(self) -> str:
        return f"{self.num_tokens} tokens"


class RolloutGroup(models.Model):
    """The G sessions of one task. `index` counts a job's groups, or those of one evaluation: 0, 1, 2, …"""

    id = models.UUIDField(primary_key=True)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="+")
    index = models.PositiveBigIntegerField()
    evaluation_version = models.PositiveBigIntegerField(
        null=True, help_text="Set for held-out groups, which are never trained: the version they evaluate."
    )
    external_key = models.CharField(max_length=200, blank=True, default="")
    task_index = models.PositiveIntegerField(null=True)
    task = models.JSONField(default=dict)
    size = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=_choices(GroupState), default=GroupState.OPEN.value)
    reason = models.TextField(blank=True, default="")
    num_rewarded = models.PositiveIntegerField(default=0)
    reward_mean = models.FloatField(null=True)
    reward_std = models.FloatField(null=True)
    min_version = models.BigIntegerField(
        null=True, help_text="Oldest version that sampled one of its tokens."
    )
    max_version = models.BigIntegerField(null=True)
    batch_number = models.PositiveBigIntegerField(null=True)
    drop_cause = models.CharField(
        max_length=16,
        blank=True,
        default="",
        db_default="",
        choices=_choices(DropCause),
        help_text="Why it was dropped.",
    )
    replaced_for = models.PositiveBigIntegerField(
        null=True, help_text="Set for dropped groups: the number of the batch that counts it as waste."
    )
    lease_phase_id = models.UUIDField(null=True, help_text="The agent phase that runs it.")
    lease_fence = models.PositiveBigIntegerField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    ready_at = models.DateTimeField(null=True)
    finalized_at = models.DateTimeField(null=True, help_text="When none of its sessions could run any more.")

    class Meta:
        db_table = "trajectory_group"
        constraints = [
            models.UniqueConstraint(
                fields=["job", "index"],
                condition=models.Q(evaluation_version=None),
                name="trajectory_group_train_index",
            ),
            models.UniqueConstraint(
                fields=["job", "evaluation_version", "index"],
                condition=models.Q(evaluation_version__isnull=False),
                name="trajectory_group_eval_index",
            ),
        ]
        indexes = [
            models.Index(fields=["job", "state", "index"], name="trajectory_group_state"),
            # The groups of an update: the list of jobs shows the rewards of each job's newest update.
            models.Index(
                fields=["job", "batch_number"],
                name="trajectory_group_batch",
                condition=models.Q(batch_number__isnull=False),
            ),
            # The newest finalized groups show whether the job's agents fail.
            models.Index(
                fields=["job", "finalized_at"],
                name="trajectory_group_finalized",
                condition=models.Q(evaluation_version=None, finalized_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"group {self.index}"


class Lull(models.Model):
    """A time in which a job's runners had free slots, but no group or session was left to begin.

    It ends when the next session begins. At most one lull of a job is open.
    """

    id = models.UUIDField(primary_key=True)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="+")
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "trajectory_lull"
        constraints = [
            models.UniqueConstraint(
                fields=["job"], condition=models.Q(ended_at=None), name="trajectory_lull_open"
            )
        ]
        indexes = [models.Index(fields=["job", "began_at"], name="trajectory_lull_job")]

    def __str__(self) -> str:
        return f"lull since {self.began_at}"


class TaskEpoch(models.Model):
    """The order of a job's tasks from group `first_index` on, if stages or history resampling choose among them."""

    id = models.UUIDField(primary_key=True)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="+")
    number = models.PositiveIntegerField(help_text="Counts the job's epochs: 0, 1, 2, …")
    stage = models.PositiveIntegerField(default=0, help_text="Index into algorithm.stages.")
    stage_request = models.PositiveIntegerField(
        default=0, help_text="jobs.Job.stage_request when it was made; a later request starts a new epoch."
    )
    first_index = models.PositiveBigIntegerField(help_text="Index of its first group.")
    num_tasks = models.PositiveIntegerField()
    order = models.BinaryField(help_text="int32 task indices, zstd.")
    reason = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()

    class Meta:
        db_table = "trajectory_epoch"
        constraints = [models.UniqueConstraint(fields=["job", "number"], name="trajectory_epoch_number")]

    def __str__(self) -> str:
        return f"epoch {self.number}, stage {self.stage}"


class Evaluation(models.Model):
    """One version measured on held-out tasks. Its figures are null until it is finished; afterwards nothing changes.

    It begins for the newest version. Once finished, it is named after the oldest version that sampled one of its
    tokens. If updates came meanwhile, later versions up to `max_version` sampled the rest.
    """

    id = models.UUIDField(primary_key=True)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="evaluations")
    version = models.PositiveBigIntegerField()
    state = models.CharField(
        max_length=16, choices=_choices(EvaluationState), default=EvaluationState.RUNNING.value
    )
    num_tasks = models.PositiveIntegerField()
    samples_per_task = models.PositiveIntegerField()
    num_rewarded = models.PositiveIntegerField(null=True)
    num_sampled_tokens = models.PositiveBigIntegerField(null=True)
    min_version = models.BigIntegerField(
        null=True, help_text="Oldest version that sampled one of its tokens."
    )
    max_version = models.BigIntegerField(null=True)
    reward_mean = models.FloatField(null=True)
    pass_at_1 = models.FloatField(null=True)
    pass_at_k = models.JSONField(default=dict, help_text="pass@k estimates by k.")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "trajectory_evaluation"
        constraints = [
            models.UniqueConstraint(fields=["job", "version"], name="trajectory_evaluation_version"),
            models.UniqueConstraint(
                fields=["job"], condition=models.Q(state="running"), name="trajectory_evaluation_one"
            ),
        ]

    def __str__(self) -> str:
        return f"evaluation of version {self.version}"


class Session(models.Model):
    """One agent episode with its trajectory tree. A slot may fail three times; a requeued session does not count."""

    id = models.UUIDField(primary_key=True)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="+")
    group = models.ForeignKey(RolloutGroup, on_delete=models.CASCADE, related_name="sessions")
    month = models.DateField(help_text="First day of the month it was opened: the partition of its nodes.")
    slot = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=16, choices=_choices(SessionState), default=SessionState.OPEN.value)
    reason = models.TextField(blank=True, default="")
    key_digest = models.BinaryField(unique=True, help_text="SHA-256 of the session's API key.")
    reward = models.FloatField(null=True)
    is_timeout = models.BooleanField(default=False)
    is_requeued = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Ended by a drain of its runner; does not count as one of its slot's three failures.",
    )
    failure = models.CharField(
        max_length=16, blank=True, default="", db_default="", help_text="Its kind of failure; empty: none."
    )
    is_late = models.BooleanField(
        default=False, help_text="The reward arrived after its batch was made; it is stored and not trained."
    )
    metrics = models.JSONField(default=dict)
    num_turns = models.PositiveIntegerField(default=0)
    num_sampled_tokens = models.PositiveBigIntegerField(default=0)
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(
        null=True,
        help_text="External sessions: when it expires if it is still open; its requests postpone this.",
    )
    open_key = models.CharField(  # noqa: DJ001 - null is no key, and nulls are not unique
        max_length=200,
        null=True,
        help_text="External sessions: Idempotency-Key of the request that opened it.",
    )
    open_digest = models.BinaryField(null=True, help_text="SHA-256 of the body of that request.")
    gateway_epoch = models.BigIntegerField(
        null=True, help_text="The only epoch of a gateway that may write its turns; null until one claims it."
    )

    class Meta:
        db_table = "trajectory_session"
        constraints = [
            models.UniqueConstraint(fields=["group", "slot", "attempt"], name="trajectory_session_slot"),
            models.UniqueConstraint(
                fields=["project", "open_key"],
                condition=models.Q(open_key__isnull=False),
                name="trajectory_session_open_key",
            ),
        ]
        indexes = [
            models.Index(fields=["job", "opened_at"], name="trajectory_session_job"),
            models.Index(
                fields=["expires_at"],
                condition=models.Q(state="open", expires_at__isnull=False),
                name="trajectory_session_expiry",
            ),
            models.Index(
                fields=["gateway_epoch"], condition=models.Q(state="open"), name="trajectory_session_gateway"
            ),
        ]

    def __str__(self) -> str:
        return f"session {self.id}"


class SessionHold(models.Model):
    """How long infrastructure delayed a session: its turns waited for engines, or its gateway was away.

    The database deletes it with its session.
    """

    session = models.OneToOneField(
        Session, primary_key=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="hold"
    )
    project = models.ForeignKey(
        "accounts.Project", on_delete=models.CASCADE, related_name="+", db_index=False
    )
    gateway = models.TextField(help_text="Name of the gateway that wrote it.")
    held_s = models.FloatField(default=0.0, help_text="Seconds for which its turns waited for engines.")
    away_s = models.FloatField(
        default=0.0, db_default=0.0, help_text="Seconds for which its gateway was down, blocked or cut off."
    )
    held_since = models.DateTimeField(
        null=True, help_text="Since when at least one of its turns has been held without a break."
    )

    class Meta:
        db_table = "trajectory_session_hold"
        indexes = [
            models.Index(
                fields=["gateway"],
                name="trajectory_session_hold_open",
                condition=models.Q(held_since__isnull=False),
            )
        ]

    def __str__(self) -> str:
        return f"{self.held_s:.1f} s of session {self.session_id}"


class Gateway(models.Model):
    """A running gateway. Deleting the row ends the epoch: the sessions of that epoch open elsewhere.

    A gateway gives a sign of life every second. One that is silent for too long loses its row and joins again.
    """

    epoch = models.BigAutoField(primary_key=True)
    name = models.TextField(unique=True, help_text="The address at which the other gateways reach it.")
    public_url = models.TextField(help_text="The address that its sessions are told.")
    seen_at = models.DateTimeField(help_text="Its last sign of life, by the database's clock.")
    demands = models.JSONField(default=dict, help_text="How many turns it has for each engine, by phase.")
    turns = models.JSONField(
        null=True, help_text="How many turns run or wait for an engine, by job; null: unknown."
    )
    paces = models.JSONField(null=True, help_text="Tokens and seconds of full engines; null: unknown.")

    class Meta:
        db_table = "trajectory_gateway"

    def __str__(self) -> str:
        return f"{self.name}, epoch {self.epoch}"


class DatasetGroup(models.Model):
    """A recorded group that a job trains on, with its selected sessions, as they were when the job was submitted.

    Written once, by the control plane with the job; `position` counts the job's groups: 0, 1, 2, …
    """

    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="+")
    position = models.PositiveBigIntegerField()
    group = models.ForeignKey(RolloutGroup, on_delete=models.CASCADE, related_name="+")
    session_ids = ArrayField(models.UUIDField(), help_text="In order of slot and attempt.")

    class Meta:
        db_table = "trajectory_dataset"
        constraints = [
            models.UniqueConstraint(fields=["job", "position"], name="trajectory_dataset_position"),
            models.UniqueConstraint(fields=["job", "group"], name="trajectory_dataset_group_once"),
        ]

    def __str__(self) -> str:
        return f"recorded group {self.position}"


class NodeKind(models.IntegerChoices):
    ROOT = 0  # the shared task prompt: tokens are in PromptContent
    PROMPT = 1  # tokens the agent added (tool results, user messages, template text)
    SAMPLED = 2  # tokens the policy produced: one turn's answer


class Batch(models.Model):
    """A numbered, immutable training batch. `payload` is `core.batching.format`, zstd-compressed."""

    id = models.UUIDField(primary_key=True)
    project = models.ForeignKey("accounts.Project", on_delete=models.CASCADE, related_name="+")
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="+")
    number = models.PositiveBigIntegerField()
    state = models.CharField(max_length=16, choices=_choices(BatchState), default=BatchState.LEASED.value)
    payload = models.BinaryField(null=True, help_text="Null once a durable checkpoint contains it.")
    payload_sha256 = models.CharField(max_length=64)
    policy_version = models.BigIntegerField(help_text="The trainer's policy version when it was assembled.")
    num_groups = models.PositiveIntegerField()
    num_samples = models.PositiveIntegerField()
    num_tokens = models.PositiveBigIntegerField()
    num_trained_tokens = models.PositiveBigIntegerField()
    min_version = models.BigIntegerField(null=True)
    lease_phase_id = models.UUIDField()
    lease_fence = models.PositiveBigIntegerField()
    lease_expires_at = models.DateTimeField()
    created_at = models.DateTimeField()
    applied_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "trajectory_batch"
        constraints = [models.UniqueConstraint(fields=["job", "number"], name="trajectory_batch_number")]
        # A handful at a time: those of a trainer.
        indexes = [
            models.Index(fields=["job"], name="trajectory_batch_leased", condition=models.Q(state="leased"))
        ]

    def __str__(self) -> str:
        return f"batch {self.number}"
