"""Number formats of weights and gradients, by their names in job specs."""

from enum import StrEnum


class Dtype(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
