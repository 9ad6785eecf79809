"""What an algorithm is composed of: advantage × ratio × objective × aggregation × regularisers × off-policy rule."""

from enum import StrEnum

MAX_LOG_RATIO = 20.0
"""Log ratios are clamped to ± this before they are exponentiated, and have no gradient beyond it.
Otherwise one token on which sampler and trainer disagree by more would make the gradient of the
whole batch infinite."""


class AlgorithmName(StrEnum):
    """Named compositions; `core.algorithms.presets` holds their options and papers."""

    GRPO = "grpo"
    DR_GRPO = "dr_grpo"
    DAPO = "dapo"
    GSPO = "gspo"
    CISPO = "cispo"
    RLOO = "rloo"
    REINFORCE_PLUS_PLUS = "reinforce_plus_plus"
    REINFORCE_PLUS_PLUS_BASELINE = "reinforce_plus_plus_baseline"
    SRPO = "srpo"
    STEP_SRPO = "step_srpo"
    SFT = "sft"


class AdvantageEstimator(StrEnum):
    """group: relative to the group's mean. leave_one_out: relative to the mean of the group's other
    sessions. batch: normalised over the whole batch. batch_with_baseline: minus the group's mean,
    then normalised over the whole batch. mode_aware: one for the judge span, one for the answer
    span. one: 1 for every token (likelihood). Any other name is an estimator that the operator has
    installed."""

    GROUP = "group"
    LEAVE_ONE_OUT = "leave_one_out"
    BATCH = "batch"
    BATCH_WITH_BASELINE = "batch_with_baseline"
    MODE_AWARE = "mode_aware"
    ONE = "one"


class AdvantageNorm(StrEnum):
    """mean: reward minus the group's mean. mean_std: that, divided by the group's standard deviation."""

    MEAN = "mean"
    MEAN_STD = "mean_std"


class RatioLevel(StrEnum):
    """token: one ratio per token. sequence: the product over the sample. sequence_mean: the
    geometric mean over the sample."""

    TOKEN = "token"
    SEQUENCE = "sequence"
    SEQUENCE_MEAN = "sequence_mean"


class Objective(StrEnum):
    """clip: PPO's minimum. cispo: the clipped ratio is a constant weight on logprob × advantage.
    policy_gradient: logprob × advantage. All are maximised."""

    CLIP = "clip"
    CISPO = "cispo"
    POLICY_GRADIENT = "policy_gradient"


class Aggregation(StrEnum):
    """token_mean: mean over the trained tokens of the batch. sequence_mean: mean over sessions of
    their means over tokens. constant: sum over tokens / (sessions × aggregation_constant)."""

    TOKEN_MEAN = "token_mean"
    SEQUENCE_MEAN = "sequence_mean"
    CONSTANT = "constant"


class KlEstimator(StrEnum):
    """With d = reference - logprob. k1: -d. k2: d²/2. k3: exp(d) - d - 1."""

    K1 = "k1"
    K2 = "k2"
    K3 = "k3"


class KlPlacement(StrEnum):
    """loss: a term of the loss. reward: subtracted from the reward before the advantages are
    computed."""

    LOSS = "loss"
    REWARD = "reward"


class ProximalPolicy(StrEnum):
    """The policy that the ratio is taken against. behaviour: the sampler's recorded logprobs.
    current: the weights at the start of the step; the ratio of those weights to the sampler is then
    a constant importance weight (decoupled PPO)."""

    BEHAVIOUR = "behaviour"
    CURRENT = "current"


class ImportanceRule(StrEnum):
    """Weights π_proximal / π_behaviour. none: not applied. truncate: at most importance_max. mask:
    tokens (or sequences) outside [importance_min, importance_max] are left out of the loss, and the
    others carry their weight."""

    NONE = "none"
    TRUNCATE = "truncate"
    MASK = "mask"


class StalenessScope(StrEnum):
    """sample: a sample with one token beyond the bound is left out. token: only those tokens are
    left out."""

    SAMPLE = "sample"
    TOKEN = "token"


class StaleRule(StrEnum):
    """drop: groups beyond the bound are dropped. wait: the step waits for open groups that the next version would
    put beyond the bound."""

    DROP = "drop"
    WAIT = "wait"


class OverlongRule(StrEnum):
    """none: nothing happens. shape: DAPO's soft penalty on the reward. filter: the session is left
    out of the loss. zero_advantage: it stays in the denominators with an advantage of 0."""

    NONE = "none"
    SHAPE = "shape"
    FILTER = "filter"
    ZERO_ADVANTAGE = "zero_advantage"
