"""Epochs of a job's tasks, and moves between stages, as values."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Epoch:
    """Groups `first_index` … `end_index - 1` run the tasks of `order`."""

    number: int
    stage: int
    stage_request: int
    first_index: int
    order: NDArray[np.int32]

    @property
    def end_index(self) -> int:
        return self.first_index + len(self.order)


@dataclass(frozen=True, slots=True)
class StageRequest:
    """The stage change that a person requested last; number 0: nobody requested one."""

    number: int
    stage: int | None


@dataclass(frozen=True, slots=True)
class StageChange:
    """From which stage to which, by name, and why."""

    source: str
    target: str
    reason: str
