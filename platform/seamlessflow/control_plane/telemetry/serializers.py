"""What the API says of where time went, and what a job amounted to."""

from rest_framework import serializers

from seamlessflow.control_plane.common.http.fields import ShownIdField
from seamlessflow.core.types.ids import IdKind


class LedgerTotalOutput(serializers.Serializer):
    state = serializers.CharField()
    cause = serializers.CharField(
        help_text="Of idle: why. Of serving: full, partly_filled or draining_tail; empty where nobody measured it."
    )
    is_productive = serializers.BooleanField(help_text="Serving, training or running agents.")
    duration_s = serializers.FloatField()
    share = serializers.FloatField()
    mean_in_flight = serializers.FloatField(allow_null=True)


class ActivityOutput(serializers.Serializer):
    """Where time went. `totals` add up to the whole, always in one order: what was productive, then what was not."""

    productive_share = serializers.FloatField(
        source="activity.productive_share", allow_null=True, help_text="Null where nothing is known."
    )
    occupancy = serializers.FloatField(
        source="activity.occupancy",
        allow_null=True,
        help_text="Of the time served: mean requests in flight over those that engines decode at once.",
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
        allow_null=True, help_text="Serving: how many requests its engine decodes at once."
    )


class MachineLedgerOutput(ActivityOutput):
    name = serializers.CharField()
    machine_id = ShownIdField(IdKind.MACHINE)
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    window_s = serializers.FloatField()
    num_intervals = serializers.IntegerField(help_text="Of the window; the totals are over all of them.")
    truncated = serializers.BooleanField(
        source="is_truncated", help_text="Whether `intervals` lacks older ones: ask with `until`."
    )
    intervals = LedgerSpanOutput(many=True, help_text="The newest 5000.")


class JobLedgerOutput(ActivityOutput):
    """Of all its machines together; their work for other jobs is the state `other_jobs`."""

    machines = MachineLedgerOutput(many=True)


class SummaryOutput(serializers.Serializer):
    """What a job amounted to; see `summary.Summary`."""

    time = ActivityOutput(help_text="Of the machines that worked for it, together.")
    num_groups_trained = serializers.IntegerField()
    num_groups_dropped = serializers.IntegerField()
    reward_first_tenth = serializers.FloatField(allow_null=True)
    reward_last_tenth = serializers.FloatField(allow_null=True)
    reward_by_tenth = serializers.ListField(child=serializers.FloatField())
    num_sessions = serializers.IntegerField()
    num_turns = serializers.IntegerField()
    num_sampled_tokens = serializers.IntegerField()
    num_evaluation_tokens = serializers.IntegerField(help_text="Of those, of evaluations: never trained.")
    num_trained_tokens = serializers.IntegerField()
    trained_tokens_per_s = serializers.FloatField(
        allow_null=True, help_text="Trained tokens over the seconds from the job's start to its end or now."
    )
    num_wasted_tokens = serializers.IntegerField()
    num_turns_handed_over = serializers.IntegerField()
    num_turns_continued = serializers.IntegerField()
    num_turns_of_several_versions = serializers.IntegerField()
    max_gap_s = serializers.FloatField(allow_null=True)
