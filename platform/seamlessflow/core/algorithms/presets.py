"""Named algorithms: options that differ from the common ones, each with its paper. The registry of
the job spec.

A preset is data: `AlgorithmSection` uses it to fill every option that a spec leaves out. The values
are those of the papers; where a paper gives none, the note says whose value is used instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from seamlessflow.core.algorithms.options import AlgorithmName


@dataclass(frozen=True, slots=True)
class Preset:
    """`options` as in a job spec, nested sections included."""

    source: str
    options: Mapping[str, Any] = field(default_factory=dict)


_GRPO: dict[str, Any] = {
    "advantage": "group",
    "advantage_norm": "mean_std",
    "ratio": "token",
    "objective": "clip",
    "clip_low": 0.2,
    "clip_high": 0.2,
    "dual_clip": None,
    "aggregation": "sequence_mean",
    "aggregation_constant": None,
    "kl_coef": 0.0,
    "kl_estimator": "k3",
    "kl_placement": "loss",
    "entropy_coef": 0.0,
}
_TOKEN_MEAN = {"aggregation": "token_mean"}
_REINFORCE_PLUS_PLUS = {**_GRPO, **_TOKEN_MEAN, "kl_coef": 0.001}

PRESETS: Mapping[AlgorithmName, Preset] = MappingProxyType(
    {
        AlgorithmName.GRPO: Preset(
            "DeepSeekMath, arXiv 2402.03300, eq. 3 and 4 (outcome supervision), KL coefficient 0.04. "
            "The clip range is PPO's 0.2, which the paper does not restate.",
            {**_GRPO, "kl_coef": 0.04},
        ),
        AlgorithmName.DR_GRPO: Preset(
            "Understanding R1-Zero-like training, arXiv 2503.20783: no division by the group's standard deviation "
            "or by length; no KL. The constant is the token budget of an answer.",
            {**_GRPO, "advantage_norm": "mean", "aggregation": "constant"},
        ),
        AlgorithmName.DAPO: Preset(
            "arXiv 2503.14476: clip-higher 0.2 / 0.28, dynamic sampling, token mean, soft overlong punishment over the "
            "last fifth of the budget (4096 of 20480), no KL.",
            {
                **_GRPO,
                **_TOKEN_MEAN,
                "clip_high": 0.28,
                "sampling": {"dynamic": True},
                "overlong": {"rule": "shape", "buffer_fraction": 0.2, "penalty": 1.0},
            },
        ),
        AlgorithmName.GSPO: Preset(
            "arXiv 2507.18071, eq. 5 to 7, section 5.1: length-normalised sequence ratio, clip 3e-4 / 4e-4. No KL, as "
            "in its public implementations.",
            {**_GRPO, "ratio": "sequence_mean", "clip_low": 3e-4, "clip_high": 4e-4},
        ),
        AlgorithmName.CISPO: Preset(
            "MiniMax-M1, arXiv 2506.13585, eq. 4 and 5: token mean, no KL, no lower clip. The paper gives no upper "
            "bound; ours is that of ScaleRL, arXiv 2510.13786: 5 (clip_high 4).",
            {**_GRPO, **_TOKEN_MEAN, "objective": "cispo", "clip_low": 1.0, "clip_high": 4.0},
        ),
        AlgorithmName.RLOO: Preset(
            "Back to Basics, arXiv 2402.14740: the answer is one action, the baseline is its siblings' mean, KL in "
            "the reward (coefficient 0.03, its TL;DR setting). Off policy, the ratio of the whole answer is clipped "
            "(0.2).",
            {
                **_GRPO,
                "advantage": "leave_one_out",
                "advantage_norm": "mean",
                "ratio": "sequence",
                "kl_coef": 0.03,
                "kl_estimator": "k1",
                "kl_placement": "reward",
            },
        ),
        AlgorithmName.REINFORCE_PLUS_PLUS: Preset(
            "arXiv 2501.03262: per-token KL (k1) in the reward, advantages normalised over the tokens of the batch.",
            {
                **_REINFORCE_PLUS_PLUS,
                "advantage": "batch",
                "kl_estimator": "k1",
                "kl_placement": "reward",
            },
        ),
        AlgorithmName.REINFORCE_PLUS_PLUS_BASELINE: Preset(
            "arXiv 2501.03262 (with baseline): minus the group's mean, normalised over the batch, k2 as a loss term.",
            {**_REINFORCE_PLUS_PLUS, "advantage": "batch_with_baseline", "kl_estimator": "k2"},
        ),
        AlgorithmName.SRPO: Preset(
            "arXiv 2504.14286: token mean, no KL, zero advantage past the length limit, history resampling, two stages "
            "(list them in `stages`). The paper's clip range is not public; PPO's 0.2 is used.",
            {
                **_GRPO,
                **_TOKEN_MEAN,
                "sampling": {"history": True},
                "overlong": {"rule": "zero_advantage"},
            },
        ),
        AlgorithmName.STEP_SRPO: Preset(
            "A reconstruction. KAT-V1, arXiv 2507.08297, names the method without equations; ours follows HiPO, arXiv "
            "2509.23967: separate advantages for judge and answer span. HiPO's constants are options (`judge`).",
            {
                **_GRPO,
                **_TOKEN_MEAN,
                "advantage": "mode_aware",
                "overlong": {"rule": "zero_advantage"},
            },
        ),
        AlgorithmName.PPO: Preset(
            "arXiv 1707.06347 with a critic, as InstructGPT uses it for language models, arXiv 2203.02155, appendix C: "
            "no discount, GAE with λ 0.95, whitened advantages, clip 0.2 for ratio and value, KL (k1, 0.02) in the "
            "reward, learning rate of the critic 9e-6.",
            {
                **_GRPO,
                **_TOKEN_MEAN,
                "advantage": "gae",
                "kl_coef": 0.02,
                "kl_estimator": "k1",
                "kl_placement": "reward",
            },
        ),
        AlgorithmName.SFT: Preset(
            "Maximum likelihood of the stored tokens of sessions that reached `sft_min_reward`.",
            {**_GRPO, **_TOKEN_MEAN, "advantage": "one", "objective": "policy_gradient"},
        ),
    }
)


def preset_fill(name: AlgorithmName, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the preset's options overridden by `given`; nested sections are merged key by key."""
    filled = dict(PRESETS[name].options)
    for key, value in given.items():
        below = filled.get(key)
        is_nested = isinstance(below, Mapping) and isinstance(value, Mapping)
        filled[key] = {**below, **value} if is_nested and isinstance(below, Mapping) else value
    return filled
