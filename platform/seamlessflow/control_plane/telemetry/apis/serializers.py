"""The shapes of ledgers and summaries in the API."""

from rest_framework import serializers

from seamlessflow.control_plane.common.http.fields import ShownIdField
from seamlessflow.control_plane.trajectories.apis.serializers import JoinsOutput
from seamlessflow.core.types.ids import IdKind


class LedgerTotalOutput(serializers.Serializer):
    state = serializers.CharField()
    cause = serializers.CharField(
        help_text=(
            "For idle time, the reason. For serving, `full`, `partly_filled` or `draining_tail`; empty if it was not "
            "measured."
        )
    )
    is_productive = serializers.BooleanField(
        help_text="Whether the time was spent serving, training or running agents."
    )
    duration_s = serializers.FloatField()
    share = serializers.FloatField()
    mean_in_flight = serializers.FloatField(allow_null=True)


class ActivityOutput(serializers.Serializer):
    """Where time went. `totals` add up to the whole, in a fixed order: productive time first, then the rest."""

    productive_share = serializers.FloatField(
        source="activity.productive_share",
        allow_null=True,
        help_text="Share of productive time; null if nothing is known.",
    )
    occupancy = serializers.FloatField(
        source="activity.occupancy",
        allow_null=True,
        help_text=(
            "While serving: the mean fraction of the engines' slots that requests filled, at most 1. An engine has as "
            "many slots as it decodes requests at once. Null if it was not measured."
        ),
    )
    waiting_per_slot = serializers.FloatField(
        source="activity.waiting_per_slot",
        allow_null=True,
        help_text=(
            "While serving: the mean number of requests that waited at the engines for each slot; null if it was not "
            "measured."
        ),
    )
    totals = LedgerTotalOutput(source="activity.totals", many=True)


class LedgerSpanOutput(serializers.Serializer):
    state = serializers.CharField()
    cause = serializers.CharField()
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField()
    job_id = ShownIdField(IdKind.JOB, allow_null=True)
    mean_in_flight = serializers.FloatField(allow_null=True)
    num_slots = serializers.IntegerField(
        allow_null=True, help_text="While serving: the number of requests that the engine decodes at once."
    )


class MachineLedgerOutput(ActivityOutput):
    name = serializers.CharField()
    machine_id = ShownIdField(IdKind.MACHINE)
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    window_s = serializers.FloatField()
    num_intervals = serializers.IntegerField(
        help_text="Number of intervals in the span. The totals cover all of them."
    )
    truncated = serializers.BooleanField(
        source="is_truncated",
        help_text="Whether older intervals are left out of `intervals`; ask for them with `until`.",
    )
    intervals = LedgerSpanOutput(many=True, help_text="The newest intervals, at most 5000.")


class JobMachineLedgerOutput(MachineLedgerOutput):
    is_computing = serializers.BooleanField(
        help_text="Whether the machine rolled out or trained for the job. Others only ran its agents."
    )


class JobLedgerOutput(ActivityOutput):
    """Where the time of the machines went that rolled out or trained for the job: the sum over the rows of `machines`
    that have `is_computing`. Work for other jobs has the state `other_jobs`, here and in each row.
    """

    machines = JobMachineLedgerOutput(many=True)
    num_read_again_tokens = serializers.IntegerField(
        help_text=(
            "Tokens that engines read again because machines were handed over to this job, whichever job's turns "
            "they belong to."
        )
    )


class SummaryOutput(serializers.Serializer):
    """The results of a job; see `summary.Summary`."""

    time = ActivityOutput(help_text="Where the time of its machines went, taken together.")
    num_groups_trained = serializers.IntegerField()
    num_groups_dropped = serializers.IntegerField()
    reward_first_tenth = serializers.FloatField(allow_null=True)
    reward_last_tenth = serializers.FloatField(allow_null=True)
    reward_by_tenth = serializers.ListField(child=serializers.FloatField())
    num_sessions = serializers.IntegerField()
    num_turns = serializers.IntegerField()
    num_sampled_tokens = serializers.IntegerField()
    num_evaluation_tokens = serializers.IntegerField(
        help_text="Sampled tokens of evaluations, which are never trained on."
    )
    num_trained_tokens = serializers.IntegerField()
    trained_tokens_per_s = serializers.FloatField(
        allow_null=True, help_text="Trained tokens per second, from the job's start to its end or to now."
    )
    num_wasted_tokens = serializers.IntegerField()
    num_turns_handed_over = serializers.IntegerField()
    num_turns_continued = serializers.IntegerField()
    num_turns_of_several_versions = serializers.IntegerField()
    joins = JoinsOutput(
        allow_null=True, help_text="Null if the job's trajectories were deleted before it was counted."
    )
    max_gap_s = serializers.FloatField(allow_null=True)


class SessionLogOutput(serializers.Serializer):
    offset = serializers.IntegerField(
        help_text="Offset where `text` begins: the requested one, or the next byte that is kept."
    )
    next_offset = serializers.IntegerField(help_text="Offset from which to continue.")
    num_missing_bytes = serializers.IntegerField(
        help_text=(
            "Number of bytes between the requested offset and `text` that are no longer kept. A session keeps "
            "`environment.session_log_bytes` of what it prints, half from the beginning and half from the end."
        )
    )
    end = serializers.IntegerField(
        help_text="Number of bytes written so far, including those that are no longer kept."
    )
    truncated = serializers.BooleanField(help_text="Whether more follows at `next_offset`.")
    text = serializers.CharField()
