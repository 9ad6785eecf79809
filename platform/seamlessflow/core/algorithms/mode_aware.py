"""Step-SRPO's advantages, reconstructed: the judge span and the answer span of a session have different ones.

KAT-V1 (arXiv 2507.08297) publishes no equations. Ours follow HiPO (arXiv 2509.23967), which its authors name as the
detailed design of that recipe, as far as it is public; its constants are options of the job spec. Two cases are not
published, so they are decided here: a mode that no session of the group chose has no mean (the judge's first term is
then 0), and a session that never closed its judge span is all answer, in the mode that does not think.

If both modes are right, the judge learns only from the bias, and a group of one mode teaches it nothing: a policy that
was not taught to choose before needs a bias well above HiPO's (docs/results, the results of algorithms).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamlessflow.core.algorithms.options import AdvantageNorm

Floats = NDArray[np.float64]
_STD_FLOOR = 1e-6


@dataclass(frozen=True, slots=True)
class ModeAdvantages:
    """Advantages of the G sessions of a group, each [G]."""

    judge: Floats
    answer: Floats


@dataclass(frozen=True, slots=True)
class JudgeMarkers:
    """Token ids of the texts that the job spec names (`algorithm.judge`)."""

    end: tuple[int, ...]
    on: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JudgeSpan:
    num_tokens: int  # counted from the first sampled token; 0: the span was never closed
    is_on: bool  # the session chose to think


def judge_span(sampled: NDArray[np.int32], markers: JudgeMarkers) -> JudgeSpan:
    """Return the judge span of a session's sampled tokens [N]: up to and including the first end marker."""
    end = _find(sampled, markers.end)
    if end < 0:
        return JudgeSpan(num_tokens=0, is_on=False)
    length = end + len(markers.end)
    return JudgeSpan(num_tokens=length, is_on=_find(sampled[:length], markers.on) >= 0)


def mode_advantages(
    rewards: Floats, is_on: NDArray[np.bool_], *, gamma: float, bias: float, norm: AdvantageNorm
) -> ModeAdvantages:
    """Return the advantages of both spans, with r̄ the mean reward of the group and r̄_m that of the session's mode m:

    judge (r̄_m - r̄) + gamma·(r - r̄)/std; answer (r - r̄_m)/std_m. Before the judge's comparison, r̄_off is raised by
    bias·r̄_on if r̄_off ≤ r̄_on ≤ r̄_off + bias·r̄_on: thinking has to win clearly.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    modes = {mode: rewards[is_on == mode] for mode in (True, False) if (is_on == mode).any()}
    means = {mode: float(values.mean()) for mode, values in modes.items()}
    compared = dict(means)
    if len(means) == 2 and means[False] <= means[True] <= means[False] + bias * means[True]:
        compared[False] += bias * means[True]
    mean = float(rewards.mean())
    judge, answer = np.zeros_like(rewards), np.zeros_like(rewards)
    for mode, values in modes.items():
        own = is_on == mode
        judge[own] = compared[mode] - mean if len(means) == 2 else 0.0
        answer[own] = _centred(values, norm)
    return ModeAdvantages(judge=judge + gamma * _centred(rewards, AdvantageNorm.MEAN_STD), answer=answer)


def _centred(values: Floats, norm: AdvantageNorm) -> Floats:
    if (values == values[0]).all():
        return np.zeros_like(values)
    centred: Floats = values - values.mean()
    return centred if norm is AdvantageNorm.MEAN else centred / (values.std() + _STD_FLOOR)


def _find(tokens: NDArray[np.int32], wanted: Sequence[int]) -> int:
    """Return the index of the first occurrence, or -1 if there is none."""
    num_places = len(tokens) - len(wanted) + 1
    if num_places <= 0 or not wanted:
        return -1
    matches = np.ones(num_places, dtype=np.bool_)
    for offset, token in enumerate(wanted):
        matches &= tokens[offset : offset + num_places] == token
    indices = np.flatnonzero(matches)
    return int(indices[0]) if len(indices) else -1
