"""What an algorithm is composed of: advantage × ratio × objective × aggregation × regularisers × off-policy rule."""

from enum import StrEnum

MAX_LOG_RATIO = 20.0
"""Log ratios are clamped to ± this before they are exponentiated, and have no gradient beyond it.
Otherwise one token on which sampler and trainer disagree by more would make the gradient of the
whole batch infinite."""


class AlgorithmName(StrEnum):
    """Named algorithms; `core.algorithms.presets` has the options and the paper of each."""

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
    PPO = "ppo"
    SFT = "sft"


class AdvantageEstimator(StrEnum):
    """group: the reward relative to the group's mean. leave_one_out: relative to the mean of the group's other
    sessions. batch: normalised over the whole batch. batch_with_baseline: minus the group's mean, then normalised over
    the whole batch. mode_aware: one advantage for the judge span, another for the answer span. one: 1 for every token
    (likelihood). gae: generalised advantage estimation with the values of a critic, whitened over the batch. Any other
    name is an estimator that the operator has installed."""

    GROUP = "group"
    LEAVE_ONE_OUT = "leave_one_out"
    BATCH = "batch"
    BATCH_WITH_BASELINE = "batch_with_baseline"
    MODE_AWARE = "mode_aware"
    ONE = "one"
    GAE = "gae"


# One session alone has no advantage under these.
COMPARES_GROUP = (
    AdvantageEstimator.GROUP,
    AdvantageEstimator.LEAVE_ONE_OUT,
    AdvantageEstimator.BATCH_WITH_BASELINE,
    AdvantageEstimator.MODE_AWARE,
)


class AdvantageNorm(StrEnum):
    """mean: the reward minus the group's mean. mean_std: that difference, divided by the group's standard deviation."""

    MEAN = "mean"
    MEAN_STD = "mean_std"


class RatioLevel(StrEnum):
    """token: one ratio per token. sequence: the product over the sample. sequence_mean: the
    geometric mean over the sample."""

    TOKEN = "token"
    SEQUENCE = "sequence"
    SEQUENCE_MEAN = "sequence_mean"


class Objective(StrEnum):
    """clip: PPO's minimum of the plain and the clipped term. cispo: logprob × advantage, with the clipped ratio as a
    constant weight. policy_gradient: logprob × advantage. All are maximised."""

    CLIP = "clip"
    CISPO = "cispo"
    POLICY_GRADIENT = "policy_gradient"


class Aggregation(StrEnum):
    """token_mean: the mean over the trained tokens of the batch. sequence_mean: the mean over sessions of each
    session's mean over its tokens. constant: the sum over tokens, divided by (sessions × aggregation_constant)."""

    TOKEN_MEAN = "token_mean"
    SEQUENCE_MEAN = "sequence_mean"
    CONSTANT = "constant"


class KlEstimator(StrEnum):
    """With d = reference - logprob. k1: -d. k2: d²/2. k3: exp(d) - d - 1."""

    K1 = "k1"
    K2 = "k2"
    K3 = "k3"


class KlPlacement(StrEnum):
    """loss: the KL is a term of the loss. reward: it is subtracted from the reward before the
    advantages are computed."""

    LOSS = "loss"
    REWARD = "reward"


class ProximalPolicy(StrEnum):
    """The policy that the ratio is taken against. behaviour: the sampler's recorded logprobs.
    current: the weights at the start of the batch, whose logprobs the trainer computes; the ratio of
    those weights to the sampler is then a constant importance weight (decoupled PPO)."""

    BEHAVIOUR = "behaviour"
    CURRENT = "current"


class ImportanceRule(StrEnum):
    """How the weights π_proximal / π_behaviour are applied. none: not at all. truncate: larger weights are lowered to
    importance_max. mask: tokens (or sequences) whose weight is outside [importance_min, importance_max] are left out of
    the loss; the others keep their weight."""

    NONE = "none"
    TRUNCATE = "truncate"
    MASK = "mask"


class StalenessScope(StrEnum):
    """sample: a sample with a token beyond the bound is left out. token: only tokens beyond the bound are left out."""

    SAMPLE = "sample"
    TOKEN = "token"


class StaleRule(StrEnum):
    """drop: groups beyond the staleness bound are dropped. wait: before a step, the trainer waits for open groups that
    the next version would put beyond the bound."""

    DROP = "drop"
    WAIT = "wait"


class OverlongRule(StrEnum):
    """none: nothing happens. shape: DAPO's soft penalty is added to the reward. filter: the session is left out of the
    loss. zero_advantage: the session gets an advantage of 0, but still counts in the denominators."""

    NONE = "none"
    SHAPE = "shape"
    FILTER = "filter"
    ZERO_ADVANTAGE = "zero_advantage"
