"""pass@k: the probability that at least one of k samples of a task passes.

The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, eq. 1), from n ≥ k samples of which c pass: 1 − C(n−c, k)
/ C(n, k). It is computed as the product 1 − Π_{i=n−c+1..n} (1 − k/i), which never overflows.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pass_at_k(num_samples: ArrayLike, num_passed: ArrayLike, k: int) -> NDArray[np.float64]:
    """Return one estimate per task, float64 [tasks], from n and c per task, int [tasks]. Raises
    ValueError unless 0 ≤ c ≤ n and 1 ≤ k ≤ n for each task.
    """
    n, c = np.atleast_1d(np.asarray(num_samples)), np.atleast_1d(np.asarray(num_passed))
    if k < 1 or (n < k).any() or (c < 0).any() or (c > n).any():
        raise ValueError(f"pass@{k} needs 0 ≤ passed ≤ samples and 1 ≤ k ≤ samples")
    i = np.arange(1, n.max(initial=0) + 1, dtype=np.float64)
    is_factor = (i > (n - c)[:, None]) & (i <= n[:, None])
    # Where fewer than k samples failed, i = k is among the factors and makes the product 0. The
    # factors below it are negative and may be large, so they are set to 0 too.
    factors: NDArray[np.float64] = np.where(is_factor, np.maximum(1.0 - k / i, 0.0), 1.0)
    estimates: NDArray[np.float64] = 1.0 - factors.prod(axis=1)
    return estimates


def pass_at_k_mean(num_samples: ArrayLike, num_passed: ArrayLike, k: int) -> float | None:
    """Return the mean over the tasks with at least k samples; None if there are none."""
    n, c = np.asarray(num_samples), np.asarray(num_passed)
    is_known = n >= k
    return float(pass_at_k(n[is_known], c[is_known], k).mean()) if is_known.any() else None
