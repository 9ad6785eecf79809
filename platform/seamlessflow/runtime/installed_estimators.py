"""Advantage estimators of installed extensions, guarded.

It stands apart from `extensions` because it needs numpy, which processes that only look names up never import.
Invariant: whatever goes wrong in an estimator is an UnusableExtension that names it.
"""

from collections.abc import Callable

import numpy as np

from seamlessflow.core.algorithms.advantage import Floats
from seamlessflow.core.algorithms.estimators import Counts, Estimator
from seamlessflow.core.algorithms.options import AdvantageEstimator
from seamlessflow.core.algorithms.section import AlgorithmSection
from seamlessflow.core.extensions.declarations import Extensions
from seamlessflow.runtime.extensions import (
    UnusableExtension,
    error_shown,
    factory_call,
    not_installed,
    options_load,
)


def estimator_make(algorithm: AlgorithmSection, extensions: Extensions) -> Estimator | None:
    """Return the installed estimator that an algorithm names; None for a built-in one. Raises UnusableExtension."""
    name = algorithm.installed_advantage
    if name is None:
        return None
    extension = extensions.advantages.get(name)
    if extension is None:
        raise not_installed("algorithm.advantage", name, [*AdvantageEstimator, *extensions.advantages])
    options = options_load("algorithm.advantage_options", algorithm.advantage_options, extension.options)
    return GuardedEstimator(name, factory_call(name, extension.factory, options))


class GuardedEstimator:
    """An installed estimator. Any error in it becomes an UnusableExtension that names it."""

    def __init__(self, name: str, inner: Estimator) -> None:
        self._name = name
        self._inner = inner

    def of_group(self, rewards: Floats) -> Floats:
        return self._checked("of_group", rewards, lambda: self._inner.of_group(rewards))

    def of_batch(self, advantages: Floats, num_tokens: Counts) -> Floats:
        return self._checked("of_batch", advantages, lambda: self._inner.of_batch(advantages, num_tokens))

    def _checked(self, method: str, given: Floats, call: Callable[[], Floats]) -> Floats:
        try:
            result: Floats = np.asarray(call(), dtype=np.float64)
        except Exception as error:
            raise UnusableExtension(
                f"advantage {self._name!r}: {method} raised {error_shown(error)}"
            ) from error
        if result.shape != given.shape:
            raise UnusableExtension(
                f"advantage {self._name!r}: {method} returned the shape {result.shape} for {given.shape}"
            )
        if not np.isfinite(result).all():
            raise UnusableExtension(f"advantage {self._name!r}: {method} returned a value that is not finite")
        return result
