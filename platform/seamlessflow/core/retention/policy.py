"""The retention policy of a project: one table of settings for REST, command line, UI and docs.

Takes values by name, as people send them, and returns a checked policy. Invariant: a policy has a value for every
setting; None means that this setting deletes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

MAX_DAYS = 36_500
MAX_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class Setting:
    default: int | None
    minimum: int
    maximum: int
    unit: str
    help: str
    may_be_none: bool = True
    # Machines belong to the installation, and so do their records.
    is_of_installation: bool = False


def _days(default: int | None, text: str, *, minimum: int = 0, of_installation: bool = False) -> Setting:
    return Setting(default, minimum, MAX_DAYS, "days", text, is_of_installation=of_installation)


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "ended_checkpoints_keep": Setting(
            1,
            0,
            MAX_KEPT,
            "checkpoints",
            "An ended job keeps this many of its newest checkpoints.",
            may_be_none=False,
        ),
        "ended_checkpoints_days": _days(7, "Delete all checkpoints of a job this long after it ends."),
        "ended_versions_days": _days(
            1, "This long after a job ends, keep only its last, best and pinned policy versions."
        ),
        "uploads_unused_days": _days(90, "Delete an upload that no job has used for this long."),
        "trajectories_days": _days(90, "Delete the tokens and messages of a job this long after it ends."),
        "trajectories_to_parquet": Setting(
            1,
            0,
            1,
            "",
            "Write trajectories to Parquet files before the policy deletes them; the files stay with the job "
            "(1: yes, 0: no).",
            may_be_none=False,
        ),
        "logs_days": _days(30, "Delete the logs of a job this long after it ends."),
        "session_logs_mib": Setting(
            1024,
            0,
            1_048_576,
            "MiB",
            "Of the logs of its sessions, a job keeps this much, from the newest on. The others are deleted hourly.",
        ),
        "events_days": _days(
            180, "Delete events that are older than this, except those of running jobs.", minimum=1
        ),
        "metrics_exact_days": _days(
            30, "Roll up the metric points of a job into buckets this long after it ends."
        ),
        "jobs_days": _days(None, "Delete a job and everything it left behind this long after it ends."),
        "ledger_exact_days": _days(
            14,
            "Roll up the ledger of machines into hours after this long.",
            minimum=8,
            of_installation=True,
        ),
    }
)


class InvalidPolicy(ValueError):
    """The setting does not exist, or it cannot have this value."""

    def __init__(self, field: str, detail: str) -> None:
        super().__init__(f"{field}: {detail}")
        self.field = field
        self.detail = detail


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """Every setting with its value."""

    values: Mapping[str, int | None]

    def is_over(self, name: str, age_days: float) -> bool:
        """Whether something of this age has been kept long enough."""
        days = self.values[name]
        return days is not None and age_days >= days


def settings_check(values: Mapping[str, object]) -> dict[str, int | None]:
    """Check and convert the values. Raises InvalidPolicy, which names the setting and the accepted values."""
    checked: dict[str, int | None] = {}
    for name, value in values.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise InvalidPolicy(name, f"is not a setting; accepted: {', '.join(SETTINGS)}")
        checked[name] = _value_check(name, setting, value)
    return checked


def policy_make(*overrides: Mapping[str, int | None]) -> RetentionRules:
    """Return the defaults, changed by the installation's settings and then by the project's."""
    values: dict[str, int | None] = {name: setting.default for name, setting in SETTINGS.items()}
    for layer in overrides:
        values |= {name: value for name, value in layer.items() if name in SETTINGS}
    return RetentionRules(MappingProxyType(values))


def _value_check(name: str, setting: Setting, value: object) -> int | None:
    counted = f" of {setting.unit}" if setting.unit else ""
    accepted = f"a whole number{counted} from {setting.minimum} to {setting.maximum}"
    if setting.may_be_none:
        accepted += ", or null to keep forever"
        if value is None:
            return None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not setting.minimum <= int(str(value)) <= setting.maximum:
        raise InvalidPolicy(name, f"{value!r} is not accepted; accepted: {accepted}")
    return int(str(value))
