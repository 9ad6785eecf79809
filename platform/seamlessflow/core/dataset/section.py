"""The data section of the job spec: a job trains on its own rollouts or on trajectories of other
jobs."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from seamlessflow.core.spec_section import JOBS, SpecSection
from seamlessflow.core.types.rewards import Reward

JobReference = Annotated[str, Field(min_length=1, max_length=120)]
Domain = Annotated[str, Field(min_length=1, max_length=64)]
Version = Annotated[int, Field(ge=0, le=10_000_000)]


class DataSource(StrEnum):
    """rollout: answers that the job's own engines sample. trajectories: sessions that other jobs of the project
    recorded."""

    ROLLOUT = "rollout"
    TRAJECTORIES = "trajectories"


class DataSection(SpecSection):
    """Selects the recorded sessions to train on, among those that had an outcome when the job was
    submitted."""

    source: DataSource = DataSource.ROLLOUT
    """`rollout`: train on what the job samples; `trajectories`: train on what other jobs recorded,
    without engines or agents."""
    jobs: list[JobReference] = Field(default_factory=list, max_length=64, json_schema_extra=JOBS)
    """Jobs of the same project whose trajectories are used, by id or name."""
    min_reward: Reward | None = 1.0
    """Leave out sessions with a lower reward; null: no lower limit."""
    max_reward: Reward | None = None
    """Leave out sessions with a higher reward; null: no upper limit."""
    best_per_group: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Maximum number of sessions per group: those with the highest reward and, if rewards are
    equal, the shorter ones; null: all."""
    from_version: Version | None = None
    """Only use sessions in which no token was sampled by an older policy version of their job."""
    to_version: Version | None = None
    """Only use sessions in which no token was sampled by a newer policy version of their job."""
    domains: list[Domain] = Field(default_factory=list, max_length=64)
    """Only use sessions whose task has one of these values as its `domain`; empty: all."""
    environments: list[JobReference] = Field(default_factory=list, max_length=16)
    """Only use sessions of jobs whose environment has one of these names; empty: all."""
    with_evaluations: bool = False
    """Also use sessions of held-out tasks. They are left out by default, because tasks that were
    trained on can no longer be used for evaluation."""
    groups_per_batch: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Groups that one training step consumes, each with its selected sessions."""
    num_epochs: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of passes over the selected sessions; the job ends after the last one."""
    shuffle: bool = True
    """Shuffle the groups anew in each epoch, using `seed`; false: keep the order in which they were
    recorded."""

    @property
    def is_offline(self) -> bool:
        return self.source is DataSource.TRAJECTORIES

    @model_validator(mode="after")
    def _refuse_what_cannot_be(self) -> "DataSection":
        if not self.is_offline:
            given = sorted(self.model_fields_set - {"source"})
            changed = [name for name in given if getattr(self, name) != getattr(_DEFAULTS, name)]
            if changed:
                raise ValueError(
                    f"{changed[0]}: selects recorded sessions, so it needs source 'trajectories'"
                )
            return self
        if not self.jobs:
            raise ValueError("jobs: must name at least one job whose trajectories to train on")
        for low, high in (("min_reward", "max_reward"), ("from_version", "to_version")):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least > most:
                raise ValueError(f"{low}: {least} is above {high} ({most}), so no session is left")
        return self


_DEFAULTS = DataSection.model_construct()
