"""The algorithm section of the job spec: a named preset whose options can be overridden.

Options that a spec leaves out come from the preset of `name` (`core.algorithms.presets`), so a
resolved spec states all of them. Impossible combinations are refused.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from seamlessflow.core.algorithms.options import (
    AdvantageEstimator,
    AdvantageNorm,
    Aggregation,
    AlgorithmName,
    ImportanceRule,
    KlEstimator,
    KlPlacement,
    Objective,
    OverlongRule,
    ProximalPolicy,
    RatioLevel,
    StalenessScope,
    StaleRule,
)
from seamlessflow.core.algorithms.presets import PRESETS, preset_fill
from seamlessflow.core.algorithms.staleness_bound import StalenessBound
from seamlessflow.core.spec_section import InstalledName, SpecSection, extension_name
from seamlessflow.core.types.rewards import Reward

Coefficient = Annotated[float, Field(ge=0, le=10)]
METRIC = "^(reward|rollout|train|perf|eval)/.+$"  # docs/metrics.md lists them
Marker = Annotated[str, Field(min_length=1, max_length=64)]
_TAUGHT_BY_EQUAL_REWARDS = (
    AdvantageEstimator.BATCH,
    AdvantageEstimator.BATCH_WITH_BASELINE,
    AdvantageEstimator.ONE,
    AdvantageEstimator.GAE,
)


class OffPolicySection(SpecSection):
    proximal: ProximalPolicy = ProximalPolicy.BEHAVIOUR
    """The policy that the ratio is taken against; `current` is decoupled PPO (arXiv 2110.00641, AReaL 2505.24298)."""
    importance: ImportanceRule = ImportanceRule.NONE
    """How the weights between the sampler and the proximal policy are applied; needs proximal:
    current."""
    importance_level: RatioLevel = RatioLevel.TOKEN
    """Whether there is one weight per token, or one per sample (the product or the geometric mean over its tokens)."""
    importance_min: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Tokens or samples with a weight below this are masked (importance: mask)."""
    importance_max: Annotated[float, Field(ge=1, le=1000)] = 2.0
    """A weight above this is lowered to it (importance: truncate), or its tokens are masked (importance: mask)."""
    staleness_scope: StalenessScope = StalenessScope.SAMPLE
    """Whether one token beyond max_staleness excludes its sample or only itself."""
    stale_groups: StaleRule = StaleRule.DROP
    """Whether updates continue while groups become too stale to train on, or wait for these
    groups."""


class SamplingSection(SpecSection):
    dynamic: bool = False
    """Replace groups whose rewards are all equal (DAPO's dynamic sampling). Their tokens are shown as wasted."""
    dynamic_limit: Annotated[int, Field(ge=1, le=1000)] = 10
    """At most this many batches' worth of groups are replaced for one batch. After that, groups are used as they come,
    so that a solved task set cannot stall the job."""
    history: bool = False
    """Skip a task in the next epoch if its newest group was all correct (SRPO); mixed and all-wrong
    tasks stay."""
    correct_reward: Reward = 1.0
    """A session is correct when its reward is at least this."""


class OverlongSection(SpecSection):
    rule: OverlongRule = OverlongRule.NONE
    """What happens to sessions that sample more tokens than the limit, or whose answer is cut off by it."""
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """The limit (L_max) on the sampled tokens of a session. Without it, each answer is limited to
    rollout.max_tokens_per_turn, and a session to max_tokens_per_turn × max_turns, at most the
    model's length."""
    buffer_fraction: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Fraction of the limit over which the penalty of `shape` grows from 0 to `penalty`."""
    penalty: Coefficient = 1.0
    """Largest penalty of `shape`, in units of reward."""


class JudgeSection(SpecSection):
    """Options of Step-SRPO. The judge span is what a session samples up to and including `end`. The session chose to
    think if this span contains `on`."""

    end: Marker = "</judge>"
    """Text that ends the judge span, ideally a single token."""
    on: Marker = "<think_on>"
    """Text in the judge span that means that the session chooses to think."""
    gamma: Coefficient = 0.3
    """Weight of the session's own advantage within the judge span's advantage (HiPO)."""
    bias: Coefficient = 0.01
    """Thinking must beat not thinking by more than this fraction of its own mean reward. Within
    that margin, the mean of not thinking is raised by the same amount (HiPO ω)."""
    norm: AdvantageNorm = AdvantageNorm.MEAN_STD
    """Whether the answer's advantage is divided by the standard deviation within its mode."""


class CriticSection(SpecSection):
    """Options of the critic, for `advantage: gae`. The critic has the architecture of the policy, begins with its
    weights, and has an optimizer of its own."""

    learning_rate: Annotated[float, Field(ge=0, le=10)] = 9e-6
    """Learning rate of the critic's AdamW; its other options are those of `train`, without a warm-up."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount γ of rewards, per sampled token."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    """λ of generalised advantage estimation: 1 uses the rewards alone, 0 trusts the critic after one token."""
    value_clip: Annotated[float, Field(gt=0, le=1e9)] | None = 0.2
    """How far the value of a token may move within a batch before its loss stops pulling it, in units of reward; null:
    no limit."""
    warmup_updates: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Number of updates at the beginning of the job in which only the critic learns. They publish the policy unchanged.
    """


class StageSection(SpecSection):
    """One stage of the task curriculum. It ends by its rule or manually; the last stage ends with
    the job."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """Name of the stage, shown in the UI and used to switch to it manually."""
    domains: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        default_factory=list, max_length=64
    )
    """Only use tasks whose `domain` is one of these; empty: all."""
    until_update: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """The stage ends once the job has published this many updates."""
    until_metric: Annotated[str, Field(pattern=METRIC, max_length=100)] | None = None
    """The stage ends once this metric, averaged over `window` updates, is at least `at_least`."""
    at_least: Annotated[float, Field(ge=-1e9, le=1e9)] | None = None
    """Value that `until_metric` must reach; set both or neither."""
    window: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Number of the newest updates of the stage over which `until_metric` is averaged."""

    @model_validator(mode="after")
    def _metric_has_a_threshold(self) -> "StageSection":
        if (self.until_metric is None) != (self.at_least is None):
            raise ValueError("until_metric and at_least: these belong together; set both or neither")
        return self


def _presets_schema(schema: dict[str, Any]) -> None:
    """Add each preset's options to the JSON Schema, so that forms can fill them in."""
    schema["x-presets"] = {
        name.value: {"source": preset.source, "options": dict(preset.options)}
        for name, preset in PRESETS.items()
    }


class AlgorithmSection(SpecSection):
    model_config = ConfigDict(json_schema_extra=_presets_schema)

    name: AlgorithmName = AlgorithmName.GRPO
    """A named algorithm. It sets every option of this section that you leave out."""
    advantage: Annotated[
        AdvantageEstimator | InstalledName,
        Field(union_mode="left_to_right"),
        BeforeValidator(extension_name),
    ] = AdvantageEstimator.GROUP
    advantage_options: dict[str, Any] = Field(default_factory=dict)
    """Options of an installed advantage estimator, as it declares them."""
    advantage_norm: AdvantageNorm = AdvantageNorm.MEAN_STD
    """Whether advantages are divided by the group's standard deviation."""
    ratio: RatioLevel = RatioLevel.TOKEN
    objective: Objective = Objective.CLIP
    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """The ratio is clipped below at 1 - clip_low; 1 means no lower bound."""
    clip_high: Annotated[float, Field(ge=0, le=1000)] = 0.2
    """The ratio is clipped above at 1 + clip_high."""
    dual_clip: Annotated[float, Field(gt=1, le=1000)] | None = None
    """Upper bound on the ratio of tokens with a negative advantage (dual-clip PPO, arXiv 1912.09729); no bound by
    default."""
    aggregation: Aggregation = Aggregation.SEQUENCE_MEAN
    aggregation_constant: Annotated[float, Field(ge=1, le=1e9)] | None = None
    """With `aggregation: constant`, the loss is divided by this and by the number of sessions. Default:
    rollout.max_tokens_per_turn."""
    kl_coef: Coefficient = 0.04
    """Weight of the KL divergence from the initial model. With 0, no reference model is loaded."""
    kl_estimator: KlEstimator = KlEstimator.K3
    kl_placement: KlPlacement = KlPlacement.LOSS
    entropy_coef: Coefficient = 0.0
    """Weight of an entropy bonus, in nats per token, aggregated like the loss."""
    max_staleness: Annotated[int, Field(ge=0, le=1000)] = 4
    """Maximum lag, in policy versions, between a token's sampler and the step that trains it."""
    sft_min_reward: Reward = 1.0
    """With `advantage: one`, sessions with a lower reward are not trained on."""
    off_policy: OffPolicySection = OffPolicySection()
    sampling: SamplingSection = SamplingSection()
    overlong: OverlongSection = OverlongSection()
    judge: JudgeSection = JudgeSection()
    critic: CriticSection = CriticSection()
    stages: list[StageSection] = Field(default_factory=list, max_length=16)
    """Stages of the curriculum, in order; empty: one stage with all tasks."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        name = given.get("name", AlgorithmName.GRPO)
        known = {str(known): known for known in AlgorithmName}
        if not isinstance(name, str) or name not in known:
            return given  # the field's own check reports it
        return preset_fill(known[name], given)

    @model_validator(mode="after")
    def _refuse_what_cannot_be(self) -> "AlgorithmSection":
        for reason in _impossible(self):
            raise ValueError(reason)
        return self

    @property
    def installed_advantage(self) -> str | None:
        """The name of the estimator if it is an installed one, else None."""
        return None if isinstance(self.advantage, AdvantageEstimator) else self.advantage

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    @property
    def needs_critic(self) -> bool:
        return self.advantage is AdvantageEstimator.GAE

    @property
    def staleness_bound(self) -> StalenessBound:
        return StalenessBound(self.max_staleness)

    @property
    def is_kl_in_reward(self) -> bool:
        return self.kl_coef > 0 and self.kl_placement is KlPlacement.REWARD


def _impossible(section: AlgorithmSection) -> Iterator[str]:
    """Yield a sentence for each combination without a meaning."""
    off_policy = section.off_policy
    is_sequence = section.ratio is not RatioLevel.TOKEN
    is_kl_in_reward = section.is_kl_in_reward
    estimator = section.advantage
    if is_sequence and section.aggregation is not Aggregation.SEQUENCE_MEAN:
        yield (
            f"ratio: a {section.ratio} ratio has one term per sequence, so aggregation must be "
            f"'sequence_mean', got {section.aggregation.value!r}"
        )
    if is_sequence and estimator is AdvantageEstimator.MODE_AWARE:
        yield f"ratio: a {section.ratio} ratio needs one advantage per sequence; mode_aware has one per span"
    if is_sequence and is_kl_in_reward and estimator is AdvantageEstimator.BATCH:
        yield (
            f"ratio: a {section.ratio} ratio needs one advantage per sequence; batch advantages with KL in the "
            "reward differ from token to token"
        )
    if is_sequence and section.objective is Objective.CISPO:
        yield "objective: cispo clips a weight per token, so ratio must be 'token'"
    if section.dual_clip is not None and section.objective is not Objective.CLIP:
        yield f"dual_clip: only bounds the clip objective, but objective is {section.objective.value!r}"
    if section.dual_clip is not None and section.dual_clip <= 1 + section.clip_high:
        yield "dual_clip: must be above 1 + clip_high"
    if section.aggregation_constant is not None and section.aggregation is not Aggregation.CONSTANT:
        yield f"aggregation_constant: only applies to aggregation 'constant', got {section.aggregation.value!r}"
    if off_policy.importance is not ImportanceRule.NONE and off_policy.proximal is ProximalPolicy.BEHAVIOUR:
        yield (
            "off_policy.importance: the ratio is already against the sampler, so its weight would be 1; set "
            "off_policy.proximal to 'current'"
        )
    if is_kl_in_reward and estimator in (AdvantageEstimator.MODE_AWARE, AdvantageEstimator.ONE):
        yield f"kl_placement: 'reward' has no meaning with {estimator} advantages; use 'loss'"
    if is_kl_in_reward and section.overlong.rule is OverlongRule.ZERO_ADVANTAGE:
        yield "overlong.rule: with KL in the reward the trainer recomputes the advantages; use 'filter' or 'shape'"
    if section.sampling.dynamic and estimator in _TAUGHT_BY_EQUAL_REWARDS:
        yield (
            f"sampling.dynamic: groups of equal rewards still teach with {estimator} advantages; only "
            "advantages relative to the group are zero there"
        )
    if estimator is AdvantageEstimator.ONE and section.objective is not Objective.POLICY_GRADIENT:
        yield "objective: likelihood (advantage 'one') has no ratio; use 'policy_gradient'"
    yield from _impossible_extension(section)
    yield from _impossible_critic(section)
    if len({stage.name for stage in section.stages}) != len(section.stages):
        yield "stages: names must differ, because a stage is selected by its name"


def _impossible_extension(section: AlgorithmSection) -> Iterator[str]:
    """Like `_impossible`, for estimators that the operator has installed."""
    installed = section.installed_advantage
    if section.is_kl_in_reward and installed is not None:
        yield f"kl_placement: 'reward' needs a built-in estimator, but advantage is {installed!r}; use 'loss'"
    if bool(section.advantage_options) and installed is None:
        yield (
            f"advantage_options: belong to an installed estimator, but {section.advantage} is built in; leave "
            "them out"
        )


def _impossible_critic(section: AlgorithmSection) -> Iterator[str]:
    """Like `_impossible`, for advantages by a critic."""
    if section.needs_critic and section.ratio is not RatioLevel.TOKEN:
        yield f"ratio: a {section.ratio} ratio needs one advantage per sequence; gae has one per token"
    if section.needs_critic and section.overlong.rule is OverlongRule.ZERO_ADVANTAGE:
        yield "overlong.rule: with a critic the trainer computes the advantages again; use 'filter' or 'shape'"
    if section.critic != CriticSection() and not section.needs_critic:
        yield f"critic: only advantage 'gae' has one, but advantage is {str(section.advantage)!r}; leave critic out"
