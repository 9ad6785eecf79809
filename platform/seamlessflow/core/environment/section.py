"""The environment section of the job spec: what runs the agents, on which tasks, and who says what they earned."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from seamlessflow.core.spec_section import Reference, SpecSection


class RewardBy(StrEnum):
    """project: an API token of the job's project. session: the session's own key as well, so an agent grades itself."""

    PROJECT = "project"
    SESSION = "session"


class EnvironmentSection(SpecSection):
    name: Literal["calculator", "arithmetic", "command", "external", "none"] = "command"
    """Built-in environment, `command` for any program, `external` when agents run outside the platform, `none` for a
    job that trains on recorded trajectories (`data.source`)."""
    tasks: Reference | None = None
    """JSONL file of tasks, one object per line: `artifact://<id>` or a path under MODEL_ROOTS."""
    command: list[str] = Field(default_factory=list, max_length=256)
    """Argument vector started per session (name: command). It finds OPENAI_BASE_URL, OPENAI_API_KEY and
    SEAMLESSFLOW_TASK in its environment; the last line it prints is JSON with a `reward` from -1e6 to 1e6."""
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 8
    """Turns after which an episode ends with the reward it has."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    """The task's own time limit; the clock stands still while the gateway holds a request."""

    reward_by: RewardBy = RewardBy.PROJECT
    """Who reports rewards and closes sessions of environment 'external': `project`, with an API token of the job's
    project; or `session`, with the session's own key as well, so that agents grade themselves."""
    session_ttl_s: Annotated[float, Field(ge=1, le=604_800)] = 900.0
    """How long a session of environment 'external' may be silent. Its calls and the turns that run put its end off;
    then it ends as if it had been closed, and its place in the group is free for another try."""
    pause_after_dropped_groups: Annotated[int, Field(ge=1, le=10_000)] = 8
    """The job pauses itself when so many groups in a row were dropped because too few of their sessions got a reward:
    its agents fail, and would fail for ever. Resumed, it tries again and counts anew."""

    @model_validator(mode="after")
    def _command_fits_name(self) -> "EnvironmentSection":
        if self.name == "command" and not self.command:
            raise ValueError("command: must name a program when environment.name is 'command'")
        if self.name == "none" and self.tasks is not None:
            raise ValueError("tasks: nobody runs them when environment.name is 'none'; leave them out")
        if self.name not in ("external", "none") and self.tasks is None:
            raise ValueError(f"tasks: is required when environment.name is {self.name!r}")
        if self.name != "external" and self.reward_by is RewardBy.SESSION:
            raise ValueError(
                f"reward_by: 'session' is for agents outside the platform; when environment.name is {self.name!r} the "
                "platform's agent runner reports the outcome, so leave reward_by out"
            )
        return self
