"""Checks what a spec says about experts against the model's configuration."""

from pathlib import Path
from typing import Any

from seamlessflow.control_plane.common.errors import field_error
from seamlessflow.control_plane.jobs.submission.references import model_config_read
from seamlessflow.core.training.section import EXPERT_PARALLEL_FAMILIES, TrainSection

_NUM_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")  # as families name it


def experts_check(folder: Path, train: TrainSection) -> None:
    """Refuse options for experts that the model does not have or that cannot be spread. Raises ApplicationError."""
    if not train.freeze_router and train.parallel.expert == 1:
        return
    config = model_config_read(folder)
    num_experts = _num_experts(config)
    family = str(config.get("model_type"))
    if train.freeze_router and not num_experts:
        raise field_error("train.freeze_router", f"a {family} model has no router; leave it out")
    if train.parallel.expert == 1:
        return
    field, accepted = "train.parallel.expert", ", ".join(EXPERT_PARALLEL_FAMILIES)
    if family not in EXPERT_PARALLEL_FAMILIES:
        raise field_error(
            field, f"experts of a {family} model cannot be spread; accepted: 1, or a model of {accepted}"
        )
    if num_experts % train.parallel.expert:
        raise field_error(
            field,
            f"{train.parallel.expert} does not divide the model's {num_experts} experts; accepted: their divisors",
        )


def _num_experts(config: dict[str, Any]) -> int:
    found = (config.get(name) for name in _NUM_EXPERTS)
    return next((value for value in found if isinstance(value, int)), 0)
