"""The algorithm section of the job spec: a named preset, any option of it overridden, impossible combinations refused.

Options that a spec leaves out come from the preset of `name` (`core.algorithms.presets`), so a resolved spec states
every one of them.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

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
from seamlessflow.core.spec_section import SpecSection
from seamlessflow.core.types.rewards import Reward

Coefficient = Annotated[float, Field(ge=0, le=10)]
METRIC = "^(reward|rollout|train|perf|eval)/.+$"  # docs/metrics.md lists them
Marker = Annotated[str, Field(min_length=1, max_length=64)]
_BATCH_WIDE = (AdvantageEstimator.BATCH, AdvantageEstimator.BATCH_WITH_BASELINE)


class OffPolicySection(SpecSection):
    proximal: ProximalPolicy = ProximalPolicy.BEHAVIOUR
    """The policy that the ratio is taken against; `current` is decoupled PPO (arXiv 2110.00641, AReaL 2505.24298)."""
    importance: ImportanceRule = ImportanceRule.NONE
    """What is done with the weights between the sampler and the proximal policy; needs proximal: current."""
    importance_level: RatioLevel = RatioLevel.TOKEN
    """Weights per token, per sample (product), or per sample (geometric mean)."""
    importance_min: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Weights below it are masked (importance: mask)."""
    importance_max: Annotated[float, Field(ge=1, le=1000)] = 2.0
    """Weights above it are cut to it (truncate) or masked (mask)."""
    staleness_scope: StalenessScope = StalenessScope.SAMPLE
    """Whether one token beyond max_staleness excludes its sample or only itself."""
    stale_groups: StaleRule = StaleRule.DROP
    """Whether updates go on while groups grow too old to train, or wait for them."""


class SamplingSection(SpecSection):
    dynamic: bool = False
    """Replace groups whose rewards are all equal (DAPO's dynamic sampling); what they cost is shown as waste."""
    dynamic_limit: Annotated[int, Field(ge=1, le=1000)] = 10
    """Batches' worth of groups replaced for one batch; then groups are taken as they come, so that a solved task set
    cannot stall the job."""
    history: bool = False
    """Leave tasks out of the next epoch whose newest group was all correct (SRPO); mixed and all-wrong ones stay."""
    correct_reward: Reward = 1.0
    """A session is correct when its reward is at least this."""


class OverlongSection(SpecSection):
    rule: OverlongRule = OverlongRule.NONE
    """What becomes of sessions whose sampled tokens pass the limit or whose answer was cut by it."""
    max_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """The limit (L_max) on the sampled tokens of a session. Without it, each answer is held to
    rollout.max_tokens_per_turn, and a session to max_tokens_per_turn × max_turns, at most the model's length."""
    buffer_fraction: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Part of the limit over which the penalty of `shape` grows from 0 to `penalty`."""
    penalty: Coefficient = 1.0
    """Largest penalty of `shape`, in units of reward."""


class JudgeSection(SpecSection):
    """Step-SRPO. The judge span is what a session samples up to and including `end`; it chose to think if it holds
    `on`."""

    end: Marker = "</judge>"
    """Text that ends the judge span; best a token of its own."""
    on: Marker = "<think_on>"
    """Text within the judge span that chooses to think."""
    gamma: Coefficient = 0.3
    """Weight of the session's own advantage within the judge's (HiPO)."""
    bias: Coefficient = 0.01
    """A lead of thinking within this part of its own mean reward does not count: the mean of not thinking is raised by
    as much (HiPO ω)."""
    norm: AdvantageNorm = AdvantageNorm.MEAN_STD
    """Whether the answer's advantage is divided by the deviation within its mode."""


class StageSection(SpecSection):
    """One stage of the tasks' curriculum. It ends by its rule, or by hand; the last one ends with the job."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    """By which it is switched to by hand, and shown."""
    domains: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        default_factory=list, max_length=64
    )
    """Only tasks whose `domain` is one of these; empty: all."""
    until_update: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Ends once so many updates of the job are published."""
    until_metric: Annotated[str, Field(pattern=METRIC, max_length=100)] | None = None
    """Ends once this metric, averaged over `window` updates, is at least `at_least`."""
    at_least: Annotated[float, Field(ge=-1e9, le=1e9)] | None = None
    """What `until_metric` has to reach; one is not given without the other."""
    window: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Updates of the stage, the newest ones, that `until_metric` is averaged over."""

    @model_validator(mode="after")
    def _metric_has_a_threshold(self) -> "StageSection":
        if (self.until_metric is None) != (self.at_least is None):
            raise ValueError("until_metric and at_least: belong together, give both or neither")
        return self


def _presets_schema(schema: dict[str, Any]) -> None:
    """The JSON Schema shows each preset's options, so that forms can fill them in."""
    schema["x-presets"] = {
        name.value: {"source": preset.source, "options": dict(preset.options)}
        for name, preset in PRESETS.items()
    }


class AlgorithmSection(SpecSection):
    model_config = ConfigDict(json_schema_extra=_presets_schema)

    name: AlgorithmName = AlgorithmName.GRPO
    """A named algorithm; it sets every option of this section that is left out (see x-presets)."""
    advantage: AdvantageEstimator = AdvantageEstimator.GROUP
    advantage_norm: AdvantageNorm = AdvantageNorm.MEAN_STD
    """Whether the deviation of the group divides its advantages."""
    ratio: RatioLevel = RatioLevel.TOKEN
    objective: Objective = Objective.CLIP
    clip_low: Annotated[float, Field(ge=0, le=1)] = 0.2
    """The ratio is clipped below at 1 - clip_low; 1 for no lower bound."""
    clip_high: Annotated[float, Field(ge=0, le=1000)] = 0.2
    """… and above at 1 + clip_high."""
    dual_clip: Annotated[float, Field(gt=1, le=1000)] | None = None
    """Bound of the ratio where the advantage is negative (dual-clip PPO, arXiv 1912.09729); none by default."""
    aggregation: Aggregation = Aggregation.SEQUENCE_MEAN
    aggregation_constant: Annotated[float, Field(ge=1, le=1e9)] | None = None
    """Divisor of `aggregation: constant` besides the sessions; by default rollout.max_tokens_per_turn."""
    kl_coef: Coefficient = 0.04
    """Weight of the KL to the initial model; 0 loads no reference model."""
    kl_estimator: KlEstimator = KlEstimator.K3
    kl_placement: KlPlacement = KlPlacement.LOSS
    entropy_coef: Coefficient = 0.0
    """Weight of an entropy bonus, in nats per token, aggregated as the loss is."""
    max_staleness: Annotated[int, Field(ge=0, le=1000)] = 4
    """Largest lag, in policy versions, between a token's sampler and the step that trains it."""
    sft_min_reward: Reward = 1.0
    """Sessions below it are not trained (advantage: one)."""
    off_policy: OffPolicySection = OffPolicySection()
    sampling: SamplingSection = SamplingSection()
    overlong: OverlongSection = OverlongSection()
    judge: JudgeSection = JudgeSection()
    stages: list[StageSection] = Field(default_factory=list, max_length=16)
    """Stages in order; none: one stage of all tasks."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        name = given.get("name", AlgorithmName.GRPO)
        known = {str(known): known for known in AlgorithmName}
        if not isinstance(name, str) or name not in known:
            return given  # the field's own check says so
        return preset_fill(known[name], given)

    @model_validator(mode="after")
    def _refuse_what_cannot_be(self) -> "AlgorithmSection":
        for is_wrong, reason in _impossible(self):
            if is_wrong:
                raise ValueError(reason)
        return self

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    @property
    def is_kl_in_reward(self) -> bool:
        return self.kl_coef > 0 and self.kl_placement is KlPlacement.REWARD


def _impossible(section: AlgorithmSection) -> list[tuple[bool, str]]:
    """(whether it is so, why it cannot be) of each combination without a meaning."""
    off_policy = section.off_policy
    is_sequence = section.ratio is not RatioLevel.TOKEN
    is_kl_in_reward = section.is_kl_in_reward
    estimator = section.advantage
    return [
        (
            is_sequence and section.aggregation is not Aggregation.SEQUENCE_MEAN,
            (
                f"ratio: a {section.ratio} ratio has one term a sequence, so aggregation must be 'sequence_mean', got "
                f"{section.aggregation.value!r}"
            ),
        ),
        (
            is_sequence and estimator is AdvantageEstimator.MODE_AWARE,
            f"ratio: a {section.ratio} ratio needs one advantage a sequence; mode_aware has one for each span",
        ),
        (
            is_sequence and is_kl_in_reward and estimator is AdvantageEstimator.BATCH,
            (
                f"ratio: a {section.ratio} ratio needs one advantage a sequence; batch advantages with KL in the "
                "reward differ from token to token"
            ),
        ),
        (
            is_sequence and section.objective is Objective.CISPO,
            "objective: cispo clips a weight per token, so ratio must be 'token'",
        ),
        (
            section.dual_clip is not None and section.objective is not Objective.CLIP,
            f"dual_clip: bounds the clip objective only, objective is {section.objective.value!r}",
        ),
        (
            section.dual_clip is not None and section.dual_clip <= 1 + section.clip_high,
            "dual_clip: must lie above 1 + clip_high",
        ),
        (
            section.aggregation_constant is not None and section.aggregation is not Aggregation.CONSTANT,
            f"aggregation_constant: belongs to aggregation 'constant', got {section.aggregation.value!r}",
        ),
        (
            off_policy.importance is not ImportanceRule.NONE
            and off_policy.proximal is ProximalPolicy.BEHAVIOUR,
            (
                "off_policy.importance: the ratio is against the sampler already, so its weight would be 1; set "
                "off_policy.proximal to 'current'"
            ),
        ),
        (
            is_kl_in_reward and estimator in (AdvantageEstimator.MODE_AWARE, AdvantageEstimator.ONE),
            f"kl_placement: 'reward' has no meaning with {estimator.value} advantages; use 'loss'",
        ),
        (
            is_kl_in_reward and section.overlong.rule is OverlongRule.ZERO_ADVANTAGE,
            "overlong.rule: with KL in the reward the trainer makes the advantages anew; use 'filter' or 'shape'",
        ),
        (
            section.sampling.dynamic and estimator in (*_BATCH_WIDE, AdvantageEstimator.ONE),
            (
                f"sampling.dynamic: groups of equal rewards do teach with {estimator.value} advantages; only "
                "advantages against the group are zero there"
            ),
        ),
        (
            estimator is AdvantageEstimator.ONE and section.objective is not Objective.POLICY_GRADIENT,
            "objective: likelihood (advantage one) has no ratio; use 'policy_gradient'",
        ),
        (
            len({stage.name for stage in section.stages}) != len(section.stages),
            "stages: names must differ, a stage is switched by its name",
        ),
    ]
