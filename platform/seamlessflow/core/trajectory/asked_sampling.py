"""What a request asks of the sampler, beside the settings that its job fixes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seamlessflow.core.guidance.guide import Guide


@dataclass(frozen=True, slots=True)
class AskedSampling:
    """`reshaping` has penalties and biases under vLLM's names; trainers do not know them: such answers never train."""

    guide: Guide | None = None
    num_top: int = 0  # likeliest tokens to report with each sampled one
    reshaping: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)
