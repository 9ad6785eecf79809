"""Advantages and value loss of PPO's critic in plain Python floats, token by token: the oracle of arrays and tensors.

It follows the textbook for one branch: GAE (arXiv 1506.02438, eq. 11 and 16, summed term by term), and the clipped
value loss of OpenAI's baselines, which InstructGPT uses (arXiv 2203.02155, appendix C).
"""

from collections.abc import Sequence


def reference_gae(
    values: Sequence[float], rewards: Sequence[float], *, gamma: float, gae_lambda: float
) -> list[float]:
    """Return the advantage of each token of one branch, as the sum Σ_l (γλ)^l·δ_{t+l}."""
    following = [*values, 0.0][1:]
    deltas = [r + gamma * v_next - v for r, v_next, v in zip(rewards, following, values, strict=True)]
    return [
        sum((gamma * gae_lambda) ** (later - t) * deltas[later] for later in range(t, len(deltas)))
        for t in range(len(deltas))
    ]


def reference_value_loss(
    values: Sequence[float],
    old_values: Sequence[float],
    returns: Sequence[float],
    weights: Sequence[float],
    value_clip: float | None,
) -> tuple[float, list[float]]:
    """Return the loss Σ w·½·max((V − G)², (V_clipped − G)²) and its derivative by each value."""
    total, gradient = 0.0, []
    for value, old, target, weight in zip(values, old_values, returns, weights, strict=True):
        plain, slope = (value - target) ** 2, 2.0 * (value - target)
        if value_clip is not None:
            near = min(max(value, old - value_clip), old + value_clip)
            if (near - target) ** 2 > plain:
                plain, slope = (near - target) ** 2, 0.0
        total += weight * plain / 2.0
        gradient.append(weight * slope / 2.0)
    return total, gradient
