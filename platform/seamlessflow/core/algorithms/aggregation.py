"""What one trained token counts for in the loss of a batch: scales that contain every denominator.

With them a loss is a plain sum over tokens, however a batch is cut, packed or spread over ranks. `sequence_mean` and
`constant` count sessions: a session that forked into several samples counts once.
"""

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.options import Aggregation


def token_scales(
    *,
    weights: NDArray[np.float64],
    sample_starts: NDArray[np.int32],
    sample_sessions: NDArray[np.int32],
    aggregation: Aggregation,
    constant: float,
) -> NDArray[np.float64]:
    """Return the factor for the weight and the advantages of each token, [T]; 0 where the weight is 0.

    `weights` [T] is 1 for a trained token (in a tree, the sum over the branches it stands for) and 0 for the others;
    `sample_starts` is [S + 1], `sample_sessions` [S]. With W the sum of weights, M the number of sessions that have
    some, and w the sum in the token's session: token_mean 1/W (DAPO, arXiv 2503.14476, eq. 8); sequence_mean 1/(M·w)
    (GRPO, arXiv 2402.03300, eq. 3); constant 1/(M·constant) (Dr. GRPO, arXiv 2503.20783). Sessions of 1 and 3 tokens: ¼
    each; ½ and ⅙; 1/(2c).
    """
    scales = np.zeros(len(weights), dtype=np.float64)
    is_trained = weights > 0
    if not is_trained.any():
        return scales
    sessions = np.repeat(sample_sessions, np.diff(sample_starts))[is_trained]
    _, which = np.unique(sessions, return_inverse=True)
    of_session = np.bincount(which, weights=weights[is_trained])
    match aggregation:
        case Aggregation.TOKEN_MEAN:
            scales[is_trained] = 1.0 / of_session.sum()
        case Aggregation.SEQUENCE_MEAN:
            scales[is_trained] = 1.0 / (len(of_session) * of_session[which])
        case Aggregation.CONSTANT:
            scales[is_trained] = 1.0 / (len(of_session) * constant)
    return scales
