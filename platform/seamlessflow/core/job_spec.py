"""The job specification: the single declaration behind YAML, REST body, CLI flags, browser form and
reference docs.

Strict: an unknown key is refused with the nearest known name (`spec_problems`), and nothing is
coerced silently. `JobSpec.model_json_schema()` is exported to `api_schema/job_spec.schema.json`.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from seamlessflow.core.algorithms.options import (
    COMPARES_GROUP,
    AdvantageEstimator,
    ImportanceRule,
    RatioLevel,
)
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.dataset.section import DataSection, DataSource
from seamlessflow.core.environment.section import EnvironmentSection as EnvironmentSection
from seamlessflow.core.evaluation.section import EvaluationSection
from seamlessflow.core.families import ModelFamily
from seamlessflow.core.rollout.section import EngineKind as EngineKind
from seamlessflow.core.rollout.section import RolloutSection as RolloutSection
from seamlessflow.core.spec_problems import SpecProblem, WrongField, spec_problems
from seamlessflow.core.spec_section import ARCHIVE, Reference, SpecSection
from seamlessflow.core.training.memory import memory_problems
from seamlessflow.core.training.section import AUTO, MAX_RANKS
from seamlessflow.core.training.section import LoraSection as LoraSection
from seamlessflow.core.training.section import TrainObjective as TrainObjective
from seamlessflow.core.training.section import TrainSection as TrainSection
from seamlessflow.core.types.dtypes import Dtype as Dtype
from seamlessflow.core.types.limits import DisplayName, Priority, Tag
from seamlessflow.core.types.tags import Role

SPEC_VERSION = 1


class ThinkingRetention(StrEnum):
    """template: a turn begins a new branch where the chat template drops earlier reasoning after a question. all: it
    stays in the branch where it was sampled, also where the template would drop it."""

    TEMPLATE = "template"
    ALL = "all"


class ModelSection(SpecSection):
    source: Annotated[Reference, Field(json_schema_extra=ARCHIVE)]
    """The initial model: `artifact://<id>`, `hub://<name>` or a path under MODEL_ROOTS."""
    dtype: Dtype = Dtype.FLOAT32
    """Number format of the weights in the engines and the trainer."""
    max_model_len: Annotated[int, Field(ge=16, le=1_048_576)] = 4096
    """Maximum sequence length (prompt and answer), in tokens."""
    family: ModelFamily = ModelFamily.AUTO
    """The format in which the model writes reasoning and tool calls. `auto` finds it by the model's chat template and
    tokens; a model that is not recognised is read like `hermes`."""
    thinking_retention: ThinkingRetention = ThinkingRetention.TEMPLATE
    """Whether the reasoning of earlier answers stays in the prompt. Where a template drops it after the next question,
    `template` begins a new branch there, and `all` continues the branch, reasoning included. Where a template drops it
    after any answer, as DeepSeek's, it stays in both cases."""


# Environments whose jobs lack a role: external agents run elsewhere, and an offline dataset needs no
# rollout.
ROLES_OF_ENVIRONMENT: Mapping[str, tuple[Role, ...]] = {
    "none": (Role.TRAIN,),
    "external": (Role.ROLLOUT, Role.TRAIN),
}


class PlacementSection(SpecSection):
    """Tags that a machine must have in addition to the tag of its role."""

    rollout: list[Tag] = Field(default_factory=list)
    train: list[Tag] = Field(default_factory=list)
    agent: list[Tag] = Field(default_factory=list)


def _environment_unless_offline(schema: dict[str, Any]) -> None:
    """Make `environment` optional for a job on an offline dataset; every other job must name one."""
    schema["required"].remove("environment")
    source = {"properties": {"source": {"const": DataSource.TRAJECTORIES.value}}, "required": ["source"]}
    schema["anyOf"] = [{"required": ["environment"]}, {"properties": {"data": source}, "required": ["data"]}]


def _group(**by_source: str) -> Any:
    return Field(json_schema_extra={"x-group": dict(by_source)})


class JobSpec(SpecSection):
    model_config = ConfigDict(json_schema_extra=_environment_unless_offline)

    spec_version: Literal[1] = 1
    name: DisplayName
    """Name shown in lists; it need not be unique."""
    model: Annotated[ModelSection, _group(rollout="open", trajectories="open")]
    environment: Annotated[EnvironmentSection, _group(rollout="open")]
    data: Annotated[DataSection, _group(rollout="closed", trajectories="open")] = DataSection()
    rollout: Annotated[RolloutSection, _group(rollout="closed")] = RolloutSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    train: TrainSection = TrainSection()
    evaluation: Annotated[EvaluationSection, _group(rollout="closed")] = EvaluationSection()
    placement: PlacementSection = PlacementSection()
    priority: Priority = 0
    """Among the jobs of its project, those of a higher priority get machines first. Against other projects it counts
    up to the ceiling that operators set, which is 0 at first."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of the order of tasks and recorded groups, and of the trainer. Engines sample with seeds of
    their own."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """The roles that the phases of the job can have."""
        return ROLES_OF_ENVIRONMENT.get(self.environment.name, tuple(Role))

    @property
    def references(self) -> list[str | None]:
        """The values of the fields that accept the address of an upload."""
        return [getattr(getattr(self, section), field) for section, field in self.uploads()]

    @model_validator(mode="before")
    @classmethod
    def _offline_data_needs_no_environment(cls, given: Any) -> Any:
        data = given.get("data") if isinstance(given, Mapping) else None
        is_offline = isinstance(data, Mapping) and data.get("source") == DataSource.TRAJECTORIES
        return {"environment": {"name": "none"}, **given} if is_offline else given

    @model_validator(mode="after")
    def _offline_data_fits(self) -> "JobSpec":
        for reason in _impossible_offline(self) if self.data.is_offline else ():
            raise ValueError(reason)
        if self.environment.name == "none" and not self.data.is_offline:
            raise ValueError(
                "environment.name: 'none' runs no agents, so nothing would be trained; name an environment, or set "
                "data.source to 'trajectories'"
            )
        return self

    @model_validator(mode="after")
    def _curriculum_needs_tasks(self) -> "JobSpec":
        algorithm = self.algorithm
        if self.environment.name == "external" and (algorithm.stages or algorithm.sampling.history):
            option = "stages" if algorithm.stages else "sampling.history"
            raise ValueError(
                f"algorithm.{option}: chooses among the platform's tasks, but agents of environment 'external' "
                f"bring their own; {'leave stages out' if algorithm.stages else 'set it to false'}"
            )
        return self

    @model_validator(mode="after")
    def _evaluation_needs_agents(self) -> "JobSpec":
        if self.environment.name == "external" and self.evaluation.is_on:
            raise ValueError(
                "evaluation.tasks: the platform's agents run held-out tasks, but agents of environment 'external' "
                "bring their own; leave evaluation.tasks out"
            )
        return self

    @model_validator(mode="after")
    def _groups_have_something_to_compare(self) -> "JobSpec":
        estimator = self.algorithm.advantage
        if self.rollout.group_size < 2 and estimator in COMPARES_GROUP and not self.data.is_offline:
            raise WrongField(
                "rollout.group_size",
                f"must be at least 2, got {self.rollout.group_size}: {estimator} advantages "
                "compare the sessions of a group, so one session alone teaches nothing; accepted with 1: "
                "algorithm.advantage gae (PPO), batch (REINFORCE++) or one",
            )
        return self

    @model_validator(mode="after")
    def _sequence_ratios_fit_trees(self) -> "JobSpec":
        levels = (self.algorithm.ratio, self.algorithm.off_policy.importance_level)
        is_by_token = all(level is RatioLevel.TOKEN for level in levels)
        if self.train.tree and self.train.objective is TrainObjective.BY_LEAVES and not is_by_token:
            raise ValueError(
                "train.tree: a ratio of whole sequences cannot be summed over the branches through one token; "
                "with objective 'by_leaves' set tree to false, or use objective 'once'"
            )
        if self.train.objective is TrainObjective.BY_LEAVES and self.algorithm.is_kl_in_reward:
            raise ValueError(
                "train.objective: 'by_leaves' trains each branch separately, but algorithm.kl_placement 'reward' "
                "charges a session once for the KL of all its tokens; accepted: objective 'once', or kl_placement "
                "'loss'"
            )
        return self

    @model_validator(mode="after")
    def _batch_has_work_for_all(self) -> "JobSpec":
        train, num_sessions = self.train, self._num_sessions
        num_ranks, num_sharing = train.least_ranks, train.parallel.sequence
        num_processes = train.num_machines * num_ranks
        if num_sessions is not None and train.num_machines > 1 and num_processes > num_sessions * num_sharing:
            raise ValueError(
                f"train.num_machines: {train.num_machines} machines with {num_ranks} processes each make "
                f"{num_processes} processes, but a {'mini-' if train.minibatches > 1 else ''}batch has only "
                f"{num_sessions} sessions (rollout.groups_per_batch x rollout.group_size); accepted: at most "
                f"{num_sharing} processes per session (train.parallel.sequence)"
            )
        return self

    @model_validator(mode="after")
    def _memory_options_fit(self) -> "JobSpec":
        for reason in memory_problems(self.train, self.model.dtype):
            raise ValueError(reason)
        return self

    def on_devices(self, num_devices: int) -> "JobSpec":
        """Return the spec for training on machines with so many devices each: `train.num_ranks` is a number."""
        if self.train.num_ranks != AUTO:
            return self
        train, num_sessions = self.train, self._num_sessions
        most = num_devices
        if num_sessions is not None:
            most = min(most, num_sessions * train.parallel.sequence // train.num_machines)
        num_ranks = max(1, min(most, MAX_RANKS) // train.least_ranks) * train.least_ranks
        return self.model_copy(update={"train": train.model_copy(update={"num_ranks": num_ranks})})

    @property
    def _num_sessions(self) -> int | None:
        """The sessions of a mini-batch, at least; None for an offline dataset, which is counted later."""
        num_groups = max(1, self.rollout.groups_per_batch // self.train.minibatches)
        return None if self.data.is_offline else num_groups * self.rollout.group_size

    @property
    def overlong_tokens(self) -> int:
        """The limit on the sampled tokens of a session that `algorithm.overlong` acts on."""
        limit = self.algorithm.overlong.max_tokens
        budget = self.rollout.max_tokens_per_turn * self.environment.max_turns
        return limit or min(budget, self.model.max_model_len)

    @property
    def overlong_turn_tokens(self) -> int | None:
        """The limit on a single answer that `algorithm.overlong` acts on; none if the spec limits sessions."""
        if self.algorithm.overlong.max_tokens is not None:
            return None
        return min(self.rollout.max_tokens_per_turn, self.model.max_model_len)

    @property
    def evaluation_temperature(self) -> float:
        given = self.evaluation.temperature
        return self.rollout.temperature if given is None else given

    @property
    def aggregation_constant(self) -> float:
        """Number of tokens that one session counts as under `aggregation: constant`."""
        return self.algorithm.aggregation_constant or float(self.rollout.max_tokens_per_turn)


def _impossible_offline(spec: JobSpec) -> Iterator[str]:
    """Yield a sentence for each option that is set and that an offline dataset leaves without work."""
    algorithm, placement = spec.algorithm, spec.placement
    if algorithm.advantage is not AdvantageEstimator.ONE:
        yield (
            f"algorithm.name: {algorithm.name.value!r} weights sessions by advantages of the policy that sampled "
            "them, but an offline dataset can only be imitated; set algorithm.name to 'sft'"
        )
    if algorithm.off_policy.importance is not ImportanceRule.NONE:
        yield "algorithm.off_policy.importance: the likelihood of an offline dataset has no ratio to weight; use 'none'"
    if algorithm.stages or algorithm.sampling.history:
        yield (
            "algorithm.stages and sampling.history: these choose tasks to run, but a job on an offline "
            "dataset runs none; use data.domains to select recorded tasks"
        )
    if algorithm.sft_min_reward != AlgorithmSection.model_fields["sft_min_reward"].default:
        yield "algorithm.sft_min_reward: data.min_reward selects from an offline dataset; leave sft_min_reward out"
    if spec.environment.name != "none":
        yield (
            f"environment.name: {spec.environment.name!r} runs agents, but a job on an offline dataset has none; "
            "leave environment out"
        )
    if spec.rollout != RolloutSection():
        yield "rollout: a job on an offline dataset samples nothing; leave rollout out (see data.groups_per_batch)"
    if spec.evaluation.is_on:
        yield (
            "evaluation.tasks: held-out tasks need engines and agents, but a job on an offline dataset has none; "
            "leave evaluation.tasks out"
        )
    if placement.rollout or placement.agent:
        yield "placement: a job on an offline dataset has only the role train; leave rollout and agent out"


class InvalidJobSpec(ValueError):
    """The spec was refused; `problems` has one entry per fault."""

    def __init__(self, problems: list[SpecProblem]) -> None:
        super().__init__("; ".join(f"{p.field}: {p.detail}" if p.field else p.detail for p in problems))
        self.problems = problems


def job_spec_parse(body: Mapping[str, Any]) -> JobSpec:
    """Validate a submitted mapping. Raises InvalidJobSpec with every fault found."""
    try:
        return JobSpec.model_validate(body)
    except ValidationError as error:
        raise InvalidJobSpec(list(spec_problems(error, JobSpec))) from error
