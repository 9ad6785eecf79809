"""Options that have no effect, or teach nothing, in an otherwise valid combination.

They are refused when a job is submitted. Stored specs that contain them still load, because a job
that runs with a useless option must keep running.
"""

from seamlessflow.core.algorithms.options import (
    ImportanceRule,
    KlEstimator,
    KlPlacement,
    Objective,
    ProximalPolicy,
)
from seamlessflow.core.algorithms.section import AlgorithmSection


def ineffective_options(section: AlgorithmSection, *, num_steps_per_update: int) -> list[tuple[str, str]]:
    """Return (field within the section, what to do instead) for each option without effect."""
    return [(field, detail) for is_so, field, detail in _findings(section, num_steps_per_update) if is_so]


def _findings(section: AlgorithmSection, num_steps_per_update: int) -> list[tuple[bool, str, str]]:
    is_current = section.off_policy.proximal is ProximalPolicy.CURRENT and num_steps_per_update == 1
    is_weighted = section.off_policy.importance is not ImportanceRule.NONE
    is_kl_loss = section.kl_coef > 0 and section.kl_placement is KlPlacement.LOSS
    return [
        (
            is_current and not is_weighted and section.objective is not Objective.POLICY_GRADIENT,
            "off_policy.proximal",
            (
                "'current' makes every ratio 1, because a batch is one optimizer step, so clip_low and clip_high "
                "have no effect; accepted: train.minibatches or train.epochs above 1, off_policy.importance 'truncate' "
                "or 'mask', objective 'policy_gradient', or proximal 'behaviour'"
            ),
        ),
        (
            is_current and section.dual_clip is not None,
            "dual_clip",
            (
                f"the bound {section.dual_clip} has no effect, because off_policy.proximal 'current' makes every ratio "
                "1; leave dual_clip out, set train.minibatches or train.epochs above 1, or set off_policy.proximal to "
                "'behaviour'"
            ),
        ),
        (
            is_kl_loss and section.kl_estimator is KlEstimator.K1,
            "kl_estimator",
            (
                "'k1' as a term of the loss has an expected gradient of zero on policy, so it only adds noise; "
                "accepted: 'k2', 'k3', or kl_placement 'reward'"
            ),
        ),
    ]
