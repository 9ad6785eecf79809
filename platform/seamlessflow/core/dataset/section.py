"""The data section of the job spec: what is trained, the job's own rollouts or what other jobs recorded."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from seamlessflow.core.spec_section import SpecSection
from seamlessflow.core.types.rewards import Reward

JobReference = Annotated[str, Field(min_length=1, max_length=120)]
Domain = Annotated[str, Field(min_length=1, max_length=64)]
Version = Annotated[int, Field(ge=0, le=10_000_000)]


class DataSource(StrEnum):
    """rollout: what the job's own engines sample. trajectories: what other jobs of the project recorded."""

    ROLLOUT = "rollout"
    TRAJECTORIES = "trajectories"


class DataSection(SpecSection):
    """Which recorded sessions are trained: of those that had their outcome when the job was submitted."""

    source: DataSource = DataSource.ROLLOUT
    """`rollout`: what the job samples; `trajectories`: what other jobs recorded, without engines or agents."""
    jobs: list[JobReference] = Field(default_factory=list, max_length=64)
    """Jobs of the same project that recorded them, by id or by name."""
    min_reward: Reward | None = 1.0
    """Sessions below it are left out; null: none is."""
    max_reward: Reward | None = None
    """Sessions above it are left out."""
    best_per_group: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Of each group only so many sessions, those of the highest reward, the shorter ones first; null: all."""
    from_version: Version | None = None
    """Only sessions of which no token was sampled by an older policy version of their job."""
    to_version: Version | None = None
    """… and none by a newer one."""
    domains: list[Domain] = Field(default_factory=list, max_length=64)
    """Only sessions whose task has one of these as its `domain`; empty: all."""
    environments: list[JobReference] = Field(default_factory=list, max_length=16)
    """Only sessions of jobs whose environment has one of these names; empty: all."""
    with_evaluations: bool = False
    """Also sessions of held-out tasks. They are left out by default: what was trained cannot measure any more."""
    groups_per_batch: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Groups that one training step consumes, each with those of its sessions that were chosen."""
    num_epochs: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Times that every chosen session is trained; the job is over then."""
    shuffle: bool = True
    """A new order of the groups in each epoch, made from `seed`; false: the order in which they were recorded."""

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
                    f"{changed[0]}: chooses among recorded sessions; it needs source 'trajectories'"
                )
            return self
        if not self.jobs:
            raise ValueError("jobs: must name at least one job whose trajectories are trained")
        for low, high in (("min_reward", "max_reward"), ("from_version", "to_version")):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least > most:
                raise ValueError(f"{low}: {least} is above {high}, which is {most}: no session is left")
        return self


_DEFAULTS = DataSection.model_construct()
