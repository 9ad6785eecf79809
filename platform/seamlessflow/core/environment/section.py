"""The environment section of the job spec: what runs the agents, on which tasks, and who reports
rewards."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from seamlessflow.core.spec_section import FILE, InstalledName, Reference, SpecSection, extension_name

OWN_LOOPS = ("command", "external")  # their agents are programs that the platform does not know
OWN_LOOP_TURNS = 1000
MAX_SESSION_LOG_BYTES = 1 << 20
UNMANAGED = ("external", "none")  # the platform runs no agents for these
REPEATABLE = ("calculator", "arithmetic")  # what these ask depends only on the task and on earlier answers


class RewardBy(StrEnum):
    """project: only holders of an API token of the job's project. session: also holders of the session's own key, so
    that an agent can grade itself."""

    PROJECT = "project"
    SESSION = "session"


class OnTimeout(StrEnum):
    """zero: the session ends with the reward 0, which is trained. mask: it ends, counts in no figure, and none of its
    tokens is trained. drop: it failed, and its slot runs again, at most three times."""

    ZERO = "zero"
    MASK = "mask"
    DROP = "drop"


class OnFailure(StrEnum):
    """resume: the next attempt of a failed session gets the answers that were recorded, and samples what follows them.
    sample: it begins anew."""

    RESUME = "resume"
    SAMPLE = "sample"


class AgentMachines(SpecSection):
    """Machines that run the agents of a job at the same time, each up to `rollout.max_concurrent_sessions` sessions."""

    min: Annotated[int, Field(ge=1, le=1024)] = 1
    """As many are used as soon as machines have capacity for them, even if fewer would do; the job begins with one."""
    max: Annotated[int, Field(ge=1, le=1024)] = 1
    """More than `min` are used while those that the job has are full and its engines are not."""

    @model_validator(mode="after")
    def _are_in_order(self) -> "AgentMachines":
        if self.min > self.max:
            raise ValueError(f"min: {self.min} is more than max, {self.max}")
        return self


class EnvironmentSection(SpecSection):
    name: Annotated[
        Literal["calculator", "arithmetic", "command", "external", "none"] | InstalledName,
        Field(union_mode="left_to_right"),
        BeforeValidator(extension_name),
    ] = "command"
    """A built-in environment, `command` for any program, `external` if agents run outside the
    platform, `none` for a job that trains on an offline dataset (`data.source`), or the name of an
    environment that the operator has installed."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of an installed environment, as it declares them."""
    reward: Annotated[InstalledName, BeforeValidator(extension_name)] | None = None
    """Name of the reward function that grades each session's final answer: `exact_answer` or an installed one. If left
    out, the environment's own reward counts."""
    reward_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the reward function, as it declares them."""
    tasks: Annotated[Reference | None, Field(json_schema_extra=FILE)] = None
    """JSONL file of tasks, one object per line: `artifact://<id>` or a path under MODEL_ROOTS."""
    command: list[str] = Field(default_factory=list, max_length=256)
    """The program and its arguments (name: command); files by their absolute paths on the machines tagged `agent`. It
    is started once per session, in an empty folder, with OPENAI_BASE_URL, OPENAI_API_KEY and SEAMLESSFLOW_TASK in its
    environment (and ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, GOOGLE_GEMINI_BASE_URL and GEMINI_API_KEY). The last line
    that it prints must be JSON with a `reward` from -1e6 to 1e6."""
    max_turns: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Maximum number of turns of a session; an episode that reaches it ends with the reward it has. The gateway refuses
    the turn beyond it with 429 `max_turns_reached`, whatever runs the agent. If left out, 8, but 1000 for `command` and
    `external`, whose agents have loops of their own."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    """Time limit of a task, in seconds. Only the agent's own time counts: the clock stands still while the gateway
    holds a request, during set-up and grading, and while an environment waits for a service."""
    on_timeout: OnTimeout = OnTimeout.ZERO
    """The consequence when a task's own time is up. `zero`: the session ends with the reward 0, which is trained.
    `mask`: the session ends, counts in no figure, and none of its tokens is trained. `drop`: the session failed, and
    its slot runs again, at most three times."""
    on_failure: OnFailure | None = None
    """What runs after a session failed for a reason that is not its agent's: a judge, a machine, an engine, a service.
    `resume`: the next attempt gets the recorded answers as long as it asks the same, and samples what follows; so
    failures that grow with the length do not change what is trained. It is for agents whose requests depend only on the
    task and on earlier answers. `sample`: the next attempt begins anew. Default: `resume` for `calculator` and
    `arithmetic`, `sample` for all others."""
    setup_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """How many seconds the set-up of a session may take: a user for it, the start of its program, its sandbox. Then the
    session has failed and runs again; the task's clock has not begun."""
    waiting_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    """How many seconds a session may wait in all for tool servers and other services, where the environment marks such
    waits. Then it has failed and runs again."""
    grading_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """How many seconds the grading of a session may take. A judge that takes longer has failed: the session gets no
    reward and runs again."""
    session_log_bytes: Annotated[int, Field(ge=0, le=MAX_SESSION_LOG_BYTES)] = 65_536
    """How much of what a session prints is kept as its log, half of it from the beginning and half from the end. 0
    keeps nothing."""

    num_machines: AgentMachines = AgentMachines()
    """How many machines run the job's agents. A machine runs agents of several jobs."""
    reward_by: RewardBy = RewardBy.PROJECT
    """Who may report rewards and close sessions of environment 'external': with `project`, holders
    of an API token of the job's project; with `session`, also holders of the session's own key, so
    that agents can grade themselves."""
    session_ttl_s: Annotated[float, Field(ge=1, le=604_800)] = 900.0
    """How many seconds a session of environment 'external' may be idle. Each request and each running turn postpones
    the end. An expired session ends as if it had been closed, and its slot in the group is free for another attempt."""
    pause_after_dropped_groups: Annotated[int, Field(ge=1, le=10_000)] = 8
    """The job pauses itself when this many groups in a row were dropped because too few of their sessions got a reward,
    as its agents keep failing. A resumed job counts from zero."""

    @property
    def resumes_failed(self) -> bool:
        if self.on_failure is None:
            return self.name in REPEATABLE
        return self.on_failure is OnFailure.RESUME

    @model_validator(mode="before")
    @classmethod
    def _own_loops_have_more_turns(cls, given: Any) -> Any:
        is_own = isinstance(given, Mapping) and given.get("name", "command") in OWN_LOOPS
        return {"max_turns": OWN_LOOP_TURNS, **given} if is_own else given

    @model_validator(mode="after")
    def _command_fits_name(self) -> "EnvironmentSection":
        if self.name == "command" and not self.command:
            raise ValueError("command: must name a program when environment.name is 'command'")
        if self.name == "none" and self.tasks is not None:
            raise ValueError("tasks: no agent runs them when environment.name is 'none'; leave tasks out")
        if self.name not in UNMANAGED and self.tasks is None:
            raise ValueError(f"tasks: is required when environment.name is {self.name!r}")
        if self.name != "external" and self.reward_by is RewardBy.SESSION:
            raise ValueError(
                f"reward_by: 'session' is for agents outside the platform; when environment.name is {self.name!r}, the "
                "platform's agent runner reports the outcome, so leave reward_by out"
            )
        return self

    @model_validator(mode="after")
    def _extensions_are_used(self) -> "EnvironmentSection":
        unused = {
            "options": self.options,
            "reward": self.reward,
            "num_machines": self.num_machines != AgentMachines(),
            "on_failure": self.on_failure,
        }
        option = next((name for name, value in unused.items() if value), None)
        if self.name in UNMANAGED and option is not None:
            raise ValueError(
                f"{option}: the platform runs no agents when environment.name is {self.name!r}; leave {option} out"
            )
        if self.reward_options and self.reward is None:
            raise ValueError("reward_options: belong to a reward function; name it in reward")
        return self
